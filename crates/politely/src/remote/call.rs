//! One call of the coordinator, what may come of it, and who makes it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::key::Key;

use super::claim::Lease;
use crate::wire;

/// What is called.
#[derive(Debug)]
pub(super) enum Call {
    /// With the key of each report.
    Exchange(wire::Exchange, Vec<Key>),
    Renew(wire::Permits, Vec<Arc<Lease>>),
    Cancel(wire::Cancel),
    Patch(Key, wire::KeyPatch),
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) call: Call,
    /// Who is asked for, in the order of the items.
    pub(super) asked: Vec<u64>,
    pub(super) kind: Kind,
    pub(super) at: Timestamp,
}

/// How long a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An exchange that does not wait.
    Quick,
    /// One that is held open.
    Poll,
    /// Anything else.
    Errand,
}

/// What the coordinator said.
#[derive(Debug)]
pub(super) enum Reply {
    Exchanged(wire::Exchanged),
    Renewed(wire::Renewed),
    Done,
}

/// Why it said nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// It cannot be reached, or the connection broke.
    #[error("{0}")]
    Away(String),
    /// Come again after so long.
    #[error("it has more to do than it can")]
    Busy(Duration),
    /// It would refuse the call as often as it is made.
    #[error("{0}")]
    Wrong(String),
}

/// Makes calls.
pub(super) trait Transport: Clone + Send + Sync + 'static {
    /// Makes one.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Trouble>> + Send + 'static;
}
