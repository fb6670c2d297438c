//! Messages to the user. They always go to standard error, and above the progress bars if there are
//! any.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::MultiProgress;

use crate::log;

/// The maximum number of messages about input lines. A binary file given by mistake has millions of
/// such lines.
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

    /// Prints one line. It is lost if standard error is closed, as after a hang-up.
    pub(crate) fn say(&self, line: &str) {
        self.bars.suspend(|| log::say(line));
    }

    /// Prints one line that has the form of the log already.
    pub(crate) fn say_as_it_is(&self, line: &str) {
        use std::io::Write as _;
        self.bars.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }

    /// Prints one line about a line of the input.
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
