//! Caps on the items that wait in held-open calls, per client and per peer.

use std::net::IpAddr;
use std::sync::Arc;

use super::access::Caller;
use super::problem::Wrong;
use crate::tally::{self, Share, Tally};

/// The number of waiting items, by the hash of a client's name and by peer address.
#[derive(Clone)]
pub(super) struct Waiting {
    clients: Arc<Tally<u64>>,
    peers: Arc<Tally<IpAddr>>,
    hasher: foldhash::quality::RandomState,
}

/// The places of one call's items. They are released when dropped.
pub(super) struct Places {
    _client: Share<u64>,
    _peer: Share<IpAddr>,
}

impl Waiting {
    pub(super) fn new(most: usize) -> Self {
        Self {
            clients: Tally::new(most),
            peers: Tally::new(most),
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    pub(super) fn set_most(&self, most: usize) {
        self.clients.set_most(most);
        self.peers.set_most(most);
    }

    /// Takes places for `items` of the client whose permits are bound to `worker`.
    ///
    /// # Errors
    /// 429 if the client or its peer would exceed the cap.
    pub(super) fn take(
        &self,
        caller: &Caller,
        worker: &str,
        items: usize,
    ) -> Result<Places, Wrong> {
        let capped = |what: &str| {
            let most = self.clients.most();
            let detail = format!(
                "{items} more items would wait, and {what} may have {most} at a time (--waiting)"
            );
            Wrong::capped(detail)
        };
        let client = std::hash::BuildHasher::hash_one(&self.hasher, worker);
        let client = self.clients.take(client, items);
        let peer = self.peers.take(tally::peer(caller.peer), items);
        Ok(Places {
            _client: client.ok_or_else(|| capped("one client"))?,
            _peer: peer.ok_or_else(|| capped("one address"))?,
        })
    }
}
