//! A key's state as bytes.

use std::ops::Deref;

/// A key's state as bytes, with its place among all snapshots of the key.
///
/// The version is assigned under the same lock as the state. If two threads store two snapshots in
/// the wrong order, the one with the higher version is the newer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// A number that grows with each snapshot of the key within one [`Limiter`](crate::Limiter).
    /// Each limiter begins anew.
    pub version: u64,
    /// The bytes for [`Limiter::restore`](crate::Limiter::restore).
    pub state: Vec<u8>,
}

impl Deref for Snapshot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.state
    }
}
