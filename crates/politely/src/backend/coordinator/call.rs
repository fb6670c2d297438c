//! Calls of the coordinator, their results, and the trait that carries them out.

use std::future::Future;
use std::sync::Arc;

use politely_api::client::{CallError, Client};
use politely_api::wire;
use politely_core::Timestamp;
use politely_core::key::Key;

use super::permit_guard::Lease;

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
    pub(super) requests: Vec<u64>,
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
    Command,
}

/// The coordinator's answer.
#[derive(Debug)]
pub(super) enum Reply {
    Exchanged(wire::Exchanged),
    Renewed(wire::Renewed),
    Done,
}

/// Carries out calls.
pub(super) trait Transport: Clone + Send + Sync + 'static {
    /// Carries out one call.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, CallError>> + Send + 'static;
}

impl Transport for Client {
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, CallError>> + Send + 'static {
        let request = match call {
            Call::Exchange(call, _) => Request::Exchange(self.exchange(call)),
            Call::Renew(call, _) => Request::Renew(self.renew(call)),
            Call::Cancel(call) => Request::Cancel(self.cancel(call)),
            Call::Patch(key, patch) => Request::Patch(self.patch_key(key.as_str(), patch)),
        };
        async move {
            match request {
                Request::Exchange(answer) => answer.await.map(Reply::Exchanged),
                Request::Renew(answer) => answer.await.map(Reply::Renewed),
                Request::Cancel(answer) => done(answer.await),
                Request::Patch(answer) => done(answer.await),
            }
        }
    }
}

/// The future of one call over HTTP. Each operation has a future of its own type.
enum Request<E, R, C, P> {
    Exchange(E),
    Renew(R),
    Cancel(C),
    Patch(P),
}

/// Drops the content of an answer. The status alone says whether the call was carried out.
fn done<T>(answer: Result<T, CallError>) -> Result<Reply, CallError> {
    match answer {
        Ok(_) | Err(CallError::Unreadable(_)) => Ok(Reply::Done),
        Err(why) => Err(why),
    }
}
