//! Colours and weights. A colour never says what a word does not say too; `NO_COLOR` takes all of them away.

use politely::wire::KeyState;
use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) colour: bool,
}

impl Paint {
    /// As the environment wants it (<https://no-color.org>).
    pub(super) fn from_env() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: !unwanted }
    }

    pub(super) fn state(self, state: KeyState) -> Style {
        match state {
            KeyState::Ready => self.with(Color::Green),
            KeyState::Pacing | KeyState::Full | KeyState::Bytes => Style::new(),
            KeyState::Hold | KeyState::Parked => self.with(Color::Yellow),
            KeyState::Breaker | KeyState::Quarantine | KeyState::Away => self.bad(),
        }
    }

    /// Something is wrong.
    pub(super) fn bad(self) -> Style {
        self.with(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Permits and rates.
    pub(super) fn flow(self) -> Style {
        self.with(Color::Cyan)
    }

    /// Refusals.
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

/// What is looked for.
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
/// What is not.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
/// The row under the cursor.
pub(super) const CURSOR: Style = Style::new().add_modifier(Modifier::REVERSED);
