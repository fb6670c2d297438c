//! The kinds of metadata that a page has in the crawl.
//!
//! A line of the input is its own metadata. Whatever else is stored begins with a byte that no line
//! begins with, and stands in the encoding of `postcard`.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of metadata that is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that is more than a GET of its URL.
    Request = 0,
    /// A page that no line names.
    Named = 1,
    /// The note of a visit, before metadata of another kind or a line.
    Note = 2,
}

impl Kind {
    /// Returns the metadata for a value.
    pub(crate) fn store(self, value: &impl Serialize) -> Vec<u8> {
        // Writing to memory does not fail.
        postcard::to_extend(value, vec![self as u8]).unwrap_or_default()
    }

    /// Returns the value in metadata of this kind, and what follows it.
    pub(crate) fn read<T: DeserializeOwned>(self, metadata: &[u8]) -> Option<(T, &[u8])> {
        let (kind, stored) = metadata.split_first()?;
        if *kind != self as u8 {
            return None;
        }
        postcard::take_from_bytes(stored).ok()
    }
}
