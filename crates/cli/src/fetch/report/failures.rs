//! The failures of a run, for its summary: the first few by name, the rest as a count.

use std::sync::{Mutex, PoisonError};

/// The number of failures listed by name. More would push the summary off the screen; the results
/// have them all.
const LISTED_MAX: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<(Vec<String>, u64)>);

impl Failures {
    pub(crate) fn add(&self, url: &str, why: &str) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.1 += 1;
        if failures.0.len() < LISTED_MAX {
            let line = format!(
                "{}: {}",
                crate::fetch::input::lines::shown(
                    crate::fetch::input::lines::without_login(url).as_bytes()
                ),
                crate::fetch::input::lines::shown(why.as_bytes())
            );
            failures.0.push(line);
        }
    }

    /// Returns the first few failures and the number of all.
    pub(crate) fn told(&self) -> (Vec<String>, u64) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
