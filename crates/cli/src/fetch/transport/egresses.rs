//! The proxies of a run, and which of them a request takes.
//!
//! A proxy that fails is set aside for all hosts (`politely::core::fault::way`), and the request
//! takes another one at once: no request has reached the host, so neither host nor page pays.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::fault::Ways;

use super::client::WayFailed;
use crate::config::{KeyKind, Settings};
use crate::fetch::input::lines::without_login;
use crate::fetch::report::talk::Talk;

/// The shortest wait of a request that found no proxy.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// The egresses of a run: one per proxy, or one without proxies.
pub(crate) struct Egresses {
    ways: Mutex<Ways>,
    /// The URL of each proxy, without its login.
    names: Vec<String>,
    /// Whether each egress has keys of its own, so that a permit is for one egress.
    is_fixed: bool,
}

impl Egresses {
    pub(crate) fn new(settings: &Settings) -> Self {
        let names = settings.proxies.iter();
        Self {
            ways: Mutex::new(Ways::new(settings.proxies.len())),
            names: names.map(|proxy| without_login(proxy)).collect(),
            is_fixed: settings.key == KeyKind::EgressHost,
        }
    }

    /// Returns the egress for a request at `now`: `preferred`, or the next one that works.
    ///
    /// # Errors
    /// No egress works now. The error is the time of the next try. If none ever worked, there is no
    /// such error: a try tells why.
    pub(crate) fn choose(&self, now: Timestamp, preferred: usize) -> Result<usize, Timestamp> {
        if self.is_fixed || self.names.is_empty() {
            return Ok(preferred);
        }
        let mut ways = self.ways();
        match ways.choose(now, preferred) {
            Err(_) if !ways.has_worked() => Ok(preferred),
            chosen => chosen,
        }
    }

    /// Records that a request got through on `egress`.
    pub(crate) fn worked(&self, egress: usize) {
        if !self.names.is_empty() {
            self.ways().worked(egress);
        }
    }

    /// Records that `egress` failed at `now`, and says so. Returns the egress that the same request
    /// takes next, if another one works.
    pub(crate) fn failed(
        &self,
        now: Timestamp,
        egress: usize,
        why: &WayFailed,
        talk: &Talk,
    ) -> Option<usize> {
        if self.is_fixed {
            return None;
        }
        let (aside, next, failures) = {
            let mut ways = self.ways();
            let aside = ways.failed(now, egress);
            (
                aside,
                ways.choose(now, egress + 1).ok(),
                ways.failures(egress),
            )
        };
        if let Some(aside) = aside {
            let (through, secs) = (self.through(egress), aside.as_secs());
            let pause = if next.is_none() {
                "; no proxy is left"
            } else {
                ""
            };
            talk.say(&format!(
                "warning: {through}{why}; it is set aside for {secs} s after {failures} failures{pause}"
            ));
        }
        next
    }

    /// Returns the time of the next try after a failure at `now`, if a proxy worked before.
    pub(crate) fn next_try(&self, now: Timestamp) -> Option<Timestamp> {
        let ways = self.ways();
        if self.is_fixed || !ways.has_worked() {
            return None;
        }
        Some(ways.next_try().max(now + RETRY_MIN))
    }

    /// Returns the words for an error at a proxy, if `egress` is one.
    pub(crate) fn through(&self, egress: usize) -> String {
        let name = self.names.get(egress % self.names.len().max(1));
        name.map_or_else(String::new, |name| format!("through {name}: "))
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
