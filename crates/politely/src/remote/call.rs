//! Calls of the coordinator, their results, and the trait that carries them out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::key::Key;

use super::claim::Lease;
use crate::wire;

/// The operation of a call.
#[derive(Debug)]
pub(super) enum Call {
    /// An exchange, with the key of each of its reports.
    Exchange(wire::Exchange, Vec<Key>),
    Renew(wire::Permits, Vec<Arc<Lease>>),
    Cancel(wire::Cancel),
    Patch(Key, wire::KeyPatch),
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) call: Call,
    /// The numbers of the acquire requests in the call, in the order of its items.
    pub(super) asked: Vec<u64>,
    pub(super) kind: Kind,
    pub(super) at: Timestamp,
}

/// The kind of a call, which determines how many may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An exchange that the coordinator answers at once.
    Quick,
    /// An exchange that the coordinator holds open (a long poll).
    Poll,
    /// Any other call.
    Errand,
}

/// The coordinator's answer.
#[derive(Debug)]
pub(super) enum Reply {
    Exchanged(wire::Exchanged),
    Renewed(wire::Renewed),
    Done,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The coordinator cannot be reached, or the connection broke.
    #[error("{0}")]
    Away(String),
    /// The coordinator is overloaded. Call it again after this time.
    #[error("it has more to do than it can")]
    Busy(Duration),
    /// The coordinator rejects this call, and would reject it again.
    #[error("{0}")]
    Wrong(String),
}

/// Carries out calls.
pub(super) trait Transport: Clone + Send + Sync + 'static {
    /// Carries out one call.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Trouble>> + Send + 'static;
}
