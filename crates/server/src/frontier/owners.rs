//! Which worker owns which unit of work, and the permits of the unit.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely_api::wire::Told;
use politely_frontier::Token;

use crate::coordinator::{Coordinator, Number};
use crate::watch::Worker;

/// The owner of a unit of work, and the permits of its pages.
pub(super) struct Owner {
    pub(super) worker: Arc<Worker>,
    pub(super) permits: Vec<Number>,
    /// The end of its lease.
    pub(super) ends: Timestamp,
    /// The name of the permits.
    pub(super) permit: String,
    /// The pages in the order of the permits, if they are reported by their URLs.
    pub(super) urls: Vec<String>,
}

/// The owners of the units that this process handed out. After a restart, the owners of older units
/// are unknown; the fencing token alone then protects a unit.
#[derive(Default)]
pub(super) struct Owners(Mutex<HashMap<Token, Owner, foldhash::fast::FixedState>>);

impl Owners {
    pub(super) fn insert(&self, token: Token, owner: Owner) {
        self.0.lock().insert(token, owner);
    }

    /// Returns whether `worker` may speak about a unit.
    pub(super) fn is_of(&self, token: Token, worker: &Worker) -> bool {
        let owners = self.0.lock();
        let owner = owners.get(&token);
        owner.is_none_or(|owner| owner.worker.name() == worker.name())
    }

    /// Returns the name of the worker that owns a unit, if it is known.
    pub(super) fn client(&self, token: Token) -> Option<String> {
        let owners = self.0.lock();
        Some(owners.get(&token)?.worker.name().to_owned())
    }

    /// Returns the report of a page that is reported by its URL, and the worker that sends it.
    pub(super) fn report(&self, token: Token, url: &str, status: u16) -> Option<(String, Told)> {
        let owners = self.0.lock();
        let owner = owners.get(&token)?;
        let slot = owner.urls.iter().position(|of| of == url)?;
        let told = Told {
            permit: owner.permit.clone(),
            slot: u16::try_from(slot).ok()?,
            // A page that comes back without a status was fetched.
            status: Some(if status == 0 { 200 } else { status }),
            resource: Some(url.to_owned()),
            // URLFrontier has no field for a body, so rules that read one never fit.
            body_start: Some(String::new()),
            ..Told::default()
        };
        Some((owner.worker.name().to_owned(), told))
    }

    /// Forgets a unit that ended, and refunds its permits that were not reported.
    pub(super) fn end(&self, token: Token, coordinator: &Coordinator) {
        let owner = self.0.lock().remove(&token);
        if let Some(owner) = owner {
            coordinator.take_back(&owner.worker, owner.permits.into_iter());
        }
    }

    /// Sets the end of a unit's lease.
    pub(super) fn extend(&self, token: Token, ends: Timestamp) {
        if let Some(owner) = self.0.lock().get_mut(&token) {
            owner.ends = ends;
        }
    }

    /// Forgets units that are not live. Their permits end with their leases, because their requests
    /// may have been sent.
    pub(super) fn retain(&self, is_live: impl Fn(Token, &Owner) -> bool) {
        self.0.lock().retain(|token, owner| is_live(*token, owner));
    }
}
