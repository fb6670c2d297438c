//! The events that change a shared key, apart from a grant.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Rng;
use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, DeclaredLimits, UnitCosts};
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{CrawlDelay, Directions, Host, KeyRule, OperatorNumbers, Unused};
use politely_core::lock::LockOp;
use politely_core::signal::{Report, Signal};

use crate::barrier::Barrier;
use crate::held_lease::HeldLease;

/// A change of a key's state.
///
/// A replica applies an event to the state that it knows, and again to the state that the engine
/// turns out to hold. The same event makes the same state from the same state, in every process.
#[derive(Clone, Debug)]
pub enum Event {
    /// The outcome of a request.
    Report {
        /// The lease of the request.
        lease: LeaseId,
        /// The outcome.
        report: Report,
        /// Whether the body is still being received. The slot then stays taken until the body has
        /// come.
        body_coming: bool,
    },
    /// The end of a slot: the body has come, or the key only limited the request.
    Release {
        /// The lease of the request.
        lease: LeaseId,
        /// The size of the body in bytes.
        bytes: u64,
    },
    /// The costs in named units, as they turned out.
    Settle {
        /// The lease of the request.
        lease: LeaseId,
        /// The amounts.
        used: UnitCosts,
    },
    /// The end of a permit without an outcome.
    Cancel {
        /// The lease of the permit.
        lease: LeaseId,
        /// The refund, `None` if the request may have been sent.
        unused: Option<Unused>,
    },
    /// The holder needs the lease for longer.
    Renew(Arc<HeldLease>),
    /// Nothing is sent for this long.
    Hold(Duration, HoldReason),
    /// The crawl delay of a robots.txt.
    CrawlDelay(CrawlDelay),
    /// The numbers that an operator sets.
    Set(OperatorNumbers),
    /// The limits that an operator declares. `None` restores those of all keys.
    Declare(Option<DeclaredLimits>),
    /// The rule of a policy that the key follows, `None` if no rule matches it.
    Rule(Option<Arc<KeyRule>>),
    /// Requests that a fallback share granted.
    Charge(u64),
    /// An operator lifts hold, breaker and quarantine.
    Unpark,
    /// An operator drops what the law learned.
    Forget,
    /// An operator makes a declared limit whole, or all of them.
    ResetBudgets(Option<DeclaredLimit>),
    /// A change of the key's locks.
    Lock(LockOp),
    /// A state from before the engine lost it, or one that a fallback share kept.
    Join(Box<Host>),
    /// No change: a caller waits until all events before it are written.
    Barrier(Arc<Barrier>),
}

impl Event {
    /// Returns one cancellation per permit of a run of which no request was sent.
    pub fn cancelled(first: LeaseId, slots: u16, unused: Unused) -> impl Iterator<Item = Self> {
        (unused.of_run(first, slots)).map(|(lease, unused)| Self::Cancel {
            lease,
            unused: Some(unused),
        })
    }

    /// Applies the event to `host` at `now`. The jitter follows from `seed` and the lease alone.
    pub(crate) fn apply(
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
                let mut rng = Rng::of_lease(seed, *lease);
                return Some(if *body_coming {
                    host.on_head(now, *lease, report, config, &mut rng)
                } else {
                    host.report(now, *lease, report, config, &mut rng)
                });
            }
            Self::Release { lease, bytes } => host.release(now, *lease, *bytes, config),
            Self::Settle { lease, used } => host.settle(now, *lease, used, config),
            Self::Cancel { lease, unused } => host.cancel(now, *lease, *unused, config),
            Self::Renew(lease) => lease.note_renewed(host.renew(now, *lease.id(), config)),
            Self::Hold(length, reason) => {
                host.hold(now, now + *length, *reason);
            }
            Self::CrawlDelay(delay) => {
                host.crawl_delay(now, *delay, config);
            }
            Self::Set(numbers) => host.set(now, *numbers, config),
            Self::Declare(limits) => host.declare(now, limits.clone(), config),
            Self::Rule(rule) => host.follow_rule(now, rule.as_deref(), config),
            Self::Charge(requests) => host.charge_requests(now, *requests, config),
            Self::Unpark => host.unpark(now, config),
            Self::Forget => host.forget(now, config),
            Self::ResetBudgets(which) => host.reset_budgets(now, which.as_ref(), config),
            Self::Lock(op) => host.lock(now, op),
            Self::Join(other) => host.join(other, now, config),
            Self::Barrier(_) => {}
        }
        None
    }

    /// Returns whether the event spends more of the declared limits than its permit did.
    pub(crate) fn owes(&self, host: &Host, config: &Config) -> bool {
        match self {
            Self::Report { lease, report, .. } => {
                host.owes(*lease, &report.used, report.bytes, config)
            }
            Self::Release { lease, bytes } => host.owes(*lease, &UnitCosts::NONE, *bytes, config),
            Self::Settle { lease, used } => host.owes(*lease, used, 0, config),
            _ => false,
        }
    }

    /// Returns the lease of an event that may wait for the next write, `None` for an urgent event.
    ///
    /// The event must be written before that lease expires.
    pub(crate) fn can_linger(&self) -> Option<LeaseId> {
        match self {
            Self::Report { lease, report, .. } => {
                matches!(report.signal, Signal::Ok | Signal::UrlError).then_some(*lease)
            }
            Self::Release { lease, .. }
            | Self::Settle { lease, .. }
            | Self::Cancel { lease, .. } => Some(*lease),
            _ => None,
        }
    }
}
