//! The table of keys, with as many columns and rows as fit.

use politely_api::wire::KeyRow;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table as Drawn};

use super::super::columns::{self, Column, GAP};
use super::super::paint::{CURSOR, Paint, STRONG};
use super::super::state::Table;

pub(super) fn draw(frame: &mut Frame, area: Rect, table: &Table, paint: Paint) {
    let columns = columns::fitting(area.width);
    let titles = columns.iter().map(|(column, _)| {
        let mark = match table.descending {
            _ if column.sort() != Some(table.sort) => "",
            true => "▼",
            false => "▲",
        };
        aligned(*column, format!("{}{mark}", column.title()))
    });
    let rows = table.page.keys.iter().enumerate().map(|(at, row)| {
        let cells = columns.iter().map(|(column, _)| cell(*column, row, paint));
        let drawn = Row::new(cells);
        if table.page_first + at == table.cursor {
            drawn.style(CURSOR)
        } else {
            drawn
        }
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let drawn = Drawn::new(rows, widths)
        .header(Row::new(titles).style(STRONG))
        .column_spacing(GAP);
    frame.render_widget(drawn, area);
}

fn cell<'a>(column: Column, row: &KeyRow, paint: Paint) -> Cell<'a> {
    let cell = aligned(column, column.cell(row));
    match column {
        Column::State => cell.style(paint.state(row.state)),
        _ => cell,
    }
}

fn aligned<'a>(column: Column, text: String) -> Cell<'a> {
    let line = Line::from(text);
    if column.is_number() {
        line.right_aligned().into()
    } else {
        line.into()
    }
}
