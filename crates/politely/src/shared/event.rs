//! What changes a shared key, beside a grant.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{CrawlDelay, Directions, Host, OperatorNumbers, Unused};
use politely_core::signal::{Report, Signal};

use super::confirm::Barrier;
use super::lease::Lease;
use crate::registry::jitter;

/// Applied to the state one has, and once more to the state it turns out to be: the same event on the same state makes the same
/// state, wherever it is applied.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// What became of a request; `body_coming`: its slot stays taken.
    Report {
        lease: LeaseId,
        report: Report,
        body_coming: bool,
    },
    /// The slot of a body that has come, or of a key that was only a limit.
    Release { lease: LeaseId, bytes: u64 },
    /// A permit that will not be reported, and what it gives back; nothing if its request may have left.
    Cancel {
        lease: LeaseId,
        unused: Option<Unused>,
    },
    /// Its holder needs it for longer.
    Renew(Arc<Lease>),
    /// Nothing leaves for so long.
    Hold(Duration, HoldReason),
    /// robots.txt was read.
    CrawlDelay(CrawlDelay),
    /// An operator's numbers.
    Set(OperatorNumbers),
    /// An operator lifts hold, breaker and quarantine.
    Unpark,
    /// An operator forgets what was learned.
    Forget,
    /// What was known before the engine lost it.
    Join(Box<Host>),
    /// Nothing: a caller waits until all before it is written.
    Barrier(Arc<Barrier>),
}

impl Event {
    /// The permits of a run of which none left.
    pub(super) fn cancelled(
        first: LeaseId,
        slots: u16,
        unused: Unused,
    ) -> impl Iterator<Item = Self> {
        (unused.of_run(first, slots)).map(|(lease, unused)| Self::Cancel {
            lease,
            unused: Some(unused),
        })
    }

    /// `seed` makes what is random about it the same wherever it is applied.
    pub(super) fn apply(
        &self,
        host: &mut Host,
        now: Timestamp,
        config: &Config,
        seed: u64,
    ) -> Option<Directions> {
        match self {
            Self::Report {
                lease,
                report,
                body_coming,
            } => {
                let mut rng = jitter(seed, *lease);
                return Some(if *body_coming {
                    host.hear(now, *lease, report, config, &mut rng)
                } else {
                    host.report(now, *lease, report, config, &mut rng)
                });
            }
            Self::Release { lease, bytes } => host.release(now, *lease, *bytes, config),
            Self::Cancel { lease, unused } => host.cancel(now, *lease, *unused, config),
            Self::Renew(lease) => lease.answered(host.renew(now, lease.id(), config)),
            Self::Hold(length, reason) => {
                host.hold(now, now + *length, *reason);
            }
            Self::CrawlDelay(delay) => {
                host.crawl_delay(now, *delay, config);
            }
            Self::Set(numbers) => host.set(now, *numbers, config),
            Self::Unpark => host.unpark(),
            Self::Forget => host.forget(now, config),
            Self::Join(other) => host.join(other, now, config),
            Self::Barrier(_) => {}
        }
        None
    }

    /// Nobody waits for it to be written: it may ride with the next, before this lease runs out.
    pub(super) fn can_linger(&self) -> Option<LeaseId> {
        match self {
            Self::Report { lease, report, .. } => {
                matches!(report.signal, Signal::Ok | Signal::UrlError).then_some(*lease)
            }
            Self::Release { lease, .. } | Self::Cancel { lease, .. } => Some(*lease),
            _ => None,
        }
    }
}
