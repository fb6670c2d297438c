//! What a permit holds of its keys: leases in this process, and a guard for shared keys.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::gate::LeaseId;
use politely_core::host::Directions;
use politely_core::key::Key;
use politely_core::retry::Attempt;
use politely_core::signal::{Outcome, Report, Signal};

use crate::backend::local::part::{Part, renew};
use crate::backend::operations::Later;

/// The leases that a permit gives back when the request is over. Nearly all permits have one key.
/// They are small, since they are moved often.
#[derive(Debug)]
pub(crate) enum Leases {
    One(Part),
    /// The parts of several keys, or none after they were taken.
    Parts(Vec<Part>),
    /// The guard of a permit from a coordinator or an engine.
    Shared(Box<dyn PermitGuard>),
    /// The guard, and the parts of keys that this process limits alone.
    Both(Box<(Box<dyn PermitGuard>, Vec<Part>)>),
}

impl Leases {
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Parts(parts) => parts,
            Self::Shared(_) => &[],
            Self::Both(both) => &both.1,
        }
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        match self {
            Self::One(part) => vec![part],
            Self::Parts(parts) => parts,
            Self::Shared(_) => Vec::new(),
            Self::Both(both) => both.1,
        }
    }

    /// Takes the parts out, so that nothing is given back on drop.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Parts(Vec::new()))
    }

    pub(crate) fn into_guard(self) -> Option<Box<dyn PermitGuard>> {
        match self {
            Self::Shared(guard) => Some(guard),
            Self::Both(both) => Some(both.0),
            Self::One(_) | Self::Parts(_) => None,
        }
    }

    pub(crate) fn shared(&self) -> Option<&dyn PermitGuard> {
        match self {
            Self::Shared(guard) => Some(&**guard),
            Self::Both(both) => Some(&*both.0),
            Self::One(_) | Self::Parts(_) => None,
        }
    }

    pub(crate) fn shared_mut(&mut self) -> Option<&mut Box<dyn PermitGuard>> {
        match self {
            Self::Shared(guard) => Some(guard),
            Self::Both(both) => Some(&mut both.0),
            Self::One(_) | Self::Parts(_) => None,
        }
    }

    /// Returns the leases of the `i`th departure of a run.
    pub(crate) fn nth(&self, i: u16) -> Self {
        let part = |part: &Part| Part {
            shard: Arc::clone(&part.shard),
            lease: LeaseId(part.lease.0 + u64::from(i)),
            ..*part
        };
        match self.parts() {
            [one] => Self::One(part(one)),
            parts => Self::Parts(parts.iter().map(part).collect()),
        }
    }

    /// Gives nothing back: the leases expire by themselves.
    pub(crate) fn abandon(self) {
        if let Some(guard) = self.into_guard() {
            guard.abandon();
        }
    }

    /// Renews the leases, and returns how long they last from now. Returns `None` if one has
    /// expired.
    pub(crate) fn renew(&self) -> Option<Duration> {
        match self {
            Self::Shared(guard) => guard.renew(),
            Self::Both(both) => Some(both.0.renew()?.min(renew(&both.1)?)),
            Self::One(_) | Self::Parts(_) => renew(self.parts()),
        }
    }
}

/// The guard of a permit whose keys are not in this process. Dropping it gives the permit back.
pub(crate) trait PermitGuard: std::fmt::Debug + Send + Sync {
    /// Returns the time of the limiter's clock.
    fn now(&self) -> Timestamp;
    /// Returns the time after the start at which the slot returns by itself.
    fn lease(&self) -> Duration;
    fn sent(&mut self);
    /// Returns the time that is left of the lease, or `None` once it is over.
    fn renew(&self) -> Option<Duration>;
    fn abandon(self: Box<Self>);
    fn report(self: Box<Self>, report: &Report) -> Directions;
    /// Reports the head of a response. The slot stays taken until the guard is dropped.
    fn report_head(&mut self, report: &Report) -> Directions;
    /// Notes that `bytes` more of the body came.
    fn received(&mut self, bytes: u64);
    /// Corrects the estimated costs, after the head was reported.
    fn settle(&mut self, used: &UnitCosts);
    /// Splits the guard into one for each departure.
    fn split(self: Box<Self>) -> Vec<Box<dyn PermitGuard>>;
    /// Names the attempt in this permit's report, and returns the coordinator's decision about the
    /// request.
    ///
    /// Returns `None` if no coordinator decides. The future returns `None` if the decision does not
    /// come in time. `repeatable` tells whether the request can and may be sent again.
    fn judge(
        &mut self,
        _attempt: &Attempt,
        _repeatable: bool,
    ) -> Option<Later<'static, Option<Decision>>> {
        None
    }
    /// Returns whether a coordinator's rules read the bodies of good answers.
    fn needs_body(&self) -> bool {
        false
    }
    /// Returns whether a coordinator has the rules, and so the costs of the request.
    fn is_ruled_elsewhere(&self) -> bool {
        false
    }
    /// Adds the answer to the report, for the coordinator's rules. Returns whether they read its
    /// body.
    fn show(&mut self, _outcome: &Outcome<'_>) -> bool {
        false
    }
    /// Returns the leases by which another process can adopt the permit.
    fn leases(&self) -> Vec<(Key, LeaseId)> {
        Vec::new()
    }
}

/// A coordinator's word about a request that was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The meaning that a rule of the coordinator gave to the answer.
    pub(crate) signal: Option<Signal>,
    /// The next step. `None`: the request is over.
    pub(crate) next: Option<Judged>,
}

/// A coordinator's decision about a request that was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "coordinator"),
    expect(dead_code, reason = "a coordinator decides")
)]
pub(crate) enum Judged {
    /// The request waits this long and then acquires a permit again.
    Retry {
        /// How long it waits.
        after: Duration,
        /// Whether the attempt counts against it.
        is_charged: bool,
    },
    /// The request is given up, for this reason.
    GiveUp(String),
}
