//! Colours and weights. A word always repeats what a colour says; `NO_COLOR` turns all colours off.

use politely_api::wire::KeyState;
use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) colour: bool,
}

impl Paint {
    /// Returns the setting of the environment (<https://no-color.org>).
    pub(super) fn from_env() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: !unwanted }
    }

    pub(super) fn state(self, state: KeyState) -> Style {
        match state {
            KeyState::Ready => self.with(Color::Green),
            KeyState::Pacing | KeyState::Full | KeyState::Bytes | KeyState::Budget => Style::new(),
            KeyState::Hold | KeyState::Parked => self.with(Color::Yellow),
            KeyState::Breaker | KeyState::Quarantine | KeyState::Unavailable => self.bad(),
        }
    }

    /// Returns the style of errors.
    pub(super) fn bad(self) -> Style {
        self.with(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Returns the style of permits and rates.
    pub(super) fn flow(self) -> Style {
        self.with(Color::Cyan)
    }

    /// Returns the style of refusals.
    pub(super) fn refused(self) -> Style {
        self.with(Color::Red)
    }

    fn with(self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// The style of important text.
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
/// The style of less important text.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
/// The style of the row under the cursor.
pub(super) const CURSOR: Style = Style::new().add_modifier(Modifier::REVERSED);
