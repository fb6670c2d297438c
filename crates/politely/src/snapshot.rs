//! A key's state as bytes.

use std::ops::Deref;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::key::Key;

/// A key's state as bytes, with its place among all snapshots of the key.
///
/// The version is assigned under the same lock as the state. If two threads store two snapshots in
/// the wrong order, the one with the higher version is the newer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// A number that grows with each snapshot of the key within one [`Limiter`](crate::Limiter).
    /// Each limiter begins anew.
    pub version: u64,
    /// The bytes for [`Limiter::restore`](crate::Limiter::restore), or for [`Recovery::spent`].
    pub state: Vec<u8>,
}

impl Deref for Snapshot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.state
    }
}

/// The stored knowledge of a key, after the process that kept its state was killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery<'a> {
    /// Its last stored state, from [`Limiter::snapshot`](crate::Limiter::snapshot).
    pub state: Option<&'a [u8]>,
    /// The quantities that it spent of its declared limits, from
    /// [`Limiter::spent`](crate::Limiter::spent).
    pub spent: Option<&'a [u8]>,
    /// The latest departure that may have been granted.
    pub newest: Timestamp,
}

/// A permit that a process granted before it was killed.
#[derive(Clone, Debug)]
pub struct Earlier<'a> {
    /// Its keys, at least one. The first learns from the outcome.
    pub keys: &'a [Key],
    /// When its request leaves.
    pub start: Timestamp,
    /// How long its lease lasts from then.
    pub lease: Duration,
    /// The estimated costs in named units, which its keys have spent.
    pub estimate: &'a UnitCosts,
}
