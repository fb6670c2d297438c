//! The time that a run still takes: that of the host that takes longest.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use politely::core::key::Key;

use crate::fetch::engine::Engine;

/// The time until the last waiting page is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Eta {
    Known(Duration),
    /// So many hosts with waiting pages are closed, and nothing tells when they open.
    Closed(usize),
    /// This machine is at fault, and requests pause.
    Paused,
    /// The hosts' limits are not known in this process.
    Elsewhere(String),
}

impl Eta {
    /// Returns the estimate of `engine`, or `None` if no page waits.
    pub(crate) fn of(engine: &Engine) -> Option<Self> {
        let mut waiting: HashMap<Key, u64> = HashMap::new();
        let mut closed: HashSet<String> = HashSet::new();
        {
            let shared = engine.lock();
            let lanes = shared.lanes.all().iter();
            for lane in lanes {
                let pages = lane.pages_waiting() as u64 + u64::from(lane.in_flight);
                if pages == 0 {
                    continue;
                }
                if lane.is_closed() {
                    closed.insert(lane.name().to_owned());
                }
                // Each egress with keys of its own takes its share.
                let share = pages.div_ceil(lane.keys.len().max(1) as u64);
                for key in lane.keys.iter().flatten() {
                    *waiting.entry(key.clone()).or_default() += share;
                }
            }
            if shared.lanes.is_paused() {
                return Some(Self::Paused);
            }
        }
        let now = engine.limits.now();
        let mut longest = None;
        for (key, pages) in &waiting {
            let Some(known) = engine.limits.explanation(key) else {
                continue;
            };
            match known.time_for(*pages, now) {
                Some(time) => longest = longest.max(Some(time)),
                None => _ = closed.insert(key.as_str().to_owned()),
            }
        }
        match longest {
            _ if !closed.is_empty() => Some(Self::Closed(closed.len())),
            Some(time) => Some(Self::Known(time)),
            None if waiting.is_empty() => None,
            None => Some(Self::Elsewhere(engine.limits.shared_by.clone())),
        }
    }

    /// Returns the number of closed hosts, if the estimate depends on them.
    pub(crate) fn hosts_closed(&self) -> usize {
        match self {
            Self::Closed(hosts) => *hosts,
            Self::Known(_) | Self::Paused | Self::Elsewhere(_) => 0,
        }
    }

    /// Returns the estimate in seconds, if there is one.
    pub(crate) fn seconds(&self) -> Option<u64> {
        match self {
            Self::Known(time) => Some(time.as_secs_f64().ceil() as u64),
            Self::Closed(_) | Self::Paused | Self::Elsewhere(_) => None,
        }
    }
}

impl fmt::Display for Eta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(time) => match time.as_secs_f64() {
                secs @ ..120.0 => write!(f, "{:.0} s", secs.ceil()),
                secs @ ..7_200.0 => write!(f, "{:.0} min", secs / 60.0),
                secs @ ..172_800.0 => write!(f, "{:.1} h", secs / 3_600.0),
                secs => write!(f, "{:.1} days", secs / 86_400.0),
            },
            Self::Closed(1) => f.write_str("unknown: 1 host is closed"),
            Self::Closed(hosts) => write!(f, "unknown: {hosts} hosts are closed"),
            Self::Paused => f.write_str("unknown: the run pauses"),
            Self::Elsewhere(backend) => write!(f, "unknown: {backend} keeps the limits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_has_the_unit_that_a_reader_expects() {
        let of = |secs| Eta::Known(Duration::from_secs(secs)).to_string();
        assert_eq!(of(7), "7 s");
        assert_eq!(of(119), "119 s");
        assert_eq!(of(120), "2 min");
        assert_eq!(of(2 * 3_600), "2.0 h");
        assert_eq!(of(3 * 86_400), "3.0 days");
        assert_eq!(Eta::Closed(2).to_string(), "unknown: 2 hosts are closed");
    }
}
