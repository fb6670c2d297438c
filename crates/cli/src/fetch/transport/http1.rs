//! The origins that HTTP/1.1 is spoken with: they require it, or their HTTP/2 is malformed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use politely::attempts::Origins;
use url::Url;

/// The origins that HTTP/1.1 is spoken with.
#[derive(Default)]
pub(crate) struct Http1Origins {
    known: Origins,
    /// The origins that are not stored yet.
    found: Mutex<Vec<String>>,
}

impl Http1Origins {
    /// Returns whether HTTP/1.1 is spoken with the origin of `url`.
    pub(super) fn has(&self, url: &Url) -> bool {
        self.known.has(self.known.origin(url))
    }

    /// Speaks HTTP/1.1 with the origin of `url` from now on, as an earlier run did.
    pub(crate) fn restore(&self, url: &Url) {
        self.known.add(self.known.origin(url));
    }

    /// Speaks HTTP/1.1 with the origin of `url` from now on.
    pub(super) fn add(&self, url: &Url) {
        if !self.has(url) {
            self.restore(url);
            self.found().push(url.origin().ascii_serialization());
        }
    }

    /// Returns the origins that were found since the last call.
    pub(crate) fn take_found(&self) -> Vec<String> {
        std::mem::take(&mut *self.found())
    }

    /// Puts origins back that could not be stored.
    pub(crate) fn put_back(&self, origins: Vec<String>) {
        self.found().extend(origins);
    }

    fn found(&self) -> MutexGuard<'_, Vec<String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
