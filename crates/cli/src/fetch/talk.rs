//! Talk to the person: always standard error, and above the progress bars if there are any.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::MultiProgress;

/// Complaints about input lines that are shown; a binary file given by mistake has millions.
const LINES_MAX: u64 = 100;

#[derive(Debug, Default)]
pub(crate) struct Talk {
    bars: MultiProgress,
    lines: AtomicU64,
}

impl Talk {
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// One line. It is lost where standard error is gone, as after a hang-up.
    pub(crate) fn say(&self, line: &str) {
        self.bars.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }

    /// One line about a line of the input.
    pub(crate) fn about_line(&self, line: &str) {
        match self.lines.fetch_add(1, Ordering::Relaxed) {
            shown if shown < LINES_MAX => self.say(line),
            LINES_MAX => {
                self.say("further malformed lines are only counted; the results have them all");
            }
            _ => {}
        }
    }
}
