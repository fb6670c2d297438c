//! The targets of redirects that named a wait.
//!
//! The Retry-After of a redirect is the minimum time before its target is requested (RFC 9110,
//! section 10.2.3). The caller follows the redirect, with a request of its own that waits here.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::signal::Resource;

use crate::sync::{AtomicBool, Mutex};

/// Maximum number of targets remembered. Another target replaces the one that waits least.
const TARGETS_MAX: usize = 1024;

/// The targets that wait, and the end of each wait.
#[derive(Default)]
pub(super) struct Targets {
    /// Whether any target was ever added. Most clients never meet one.
    any: AtomicBool,
    waits: Mutex<HashMap<Resource, Timestamp>>,
}

impl Targets {
    pub(super) fn delay(&self, target: Resource, until: Timestamp, now: Timestamp) {
        let mut waits = self.waits.lock();
        if waits.len() >= TARGETS_MAX {
            waits.retain(|_, until| *until > now);
        }
        if waits.len() >= TARGETS_MAX
            && let Some(least) = waits.iter().min_by_key(|(_, until)| **until)
        {
            let least = *least.0;
            waits.remove(&least);
        }
        waits.insert(target, until);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns the rest of the wait of `target`.
    pub(super) fn rest(&self, target: Resource, now: Timestamp) -> Duration {
        if !self.any.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let mut waits = self.waits.lock();
        let Some(until) = waits.get(&target) else {
            return Duration::ZERO;
        };
        let rest = until.since(now);
        if rest.is_zero() {
            waits.remove(&target);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_waits_to_the_end_and_few_are_remembered() {
        let targets = Targets::default();
        let (page, at) = (Resource::of("http://a.example/"), Timestamp::from_secs_f64);
        targets.delay(page, at(9_000.0), at(0.0));
        assert_eq!(targets.rest(page, at(8_999.0)), Duration::from_secs(1));
        for other in 0..2 * TARGETS_MAX {
            let other = Resource::of(&other.to_string());
            targets.delay(other, at(5.0), at(1.0));
        }
        assert_eq!(targets.waits.lock().len(), TARGETS_MAX);
        assert_eq!(targets.rest(page, at(8_000.0)), Duration::from_secs(1_000));
        assert_eq!(targets.rest(page, at(9_000.0)), Duration::ZERO);
        assert_eq!(targets.waits.lock().len(), TARGETS_MAX - 1);
    }
}
