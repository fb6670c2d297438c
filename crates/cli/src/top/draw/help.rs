//! The help page with the effect of each key.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::paint::STRONG;
use super::super::press::HELP;

pub(super) fn draw(frame: &mut Frame, area: Rect) {
    for ((keys, what), row) in HELP.iter().zip(area.rows()) {
        let keys = Span::styled(format!("{keys:<14}"), STRONG);
        frame.render_widget(Line::from(vec![keys, Span::raw(*what)]), row);
    }
}
