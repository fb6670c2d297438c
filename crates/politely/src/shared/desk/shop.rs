//! What all desks of a process share.

use std::collections::HashSet;
use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::config::Config;

use super::super::cell::Who;
use super::super::epoch::Epochs;
use super::took::Took;

/// One for all.
pub(in crate::shared) struct Shop {
    pub(in crate::shared) me: Who,
    pub(in crate::shared) epochs: Epochs,
    pub(in crate::shared) config: Arc<Config>,
    pub(in crate::shared) seed: u64,
    /// Our last write's number.
    pub(in crate::shared) number: u64,
    /// Tickets of those who gave up while they were served.
    pub(in crate::shared) gone: HashSet<u64, foldhash::fast::RandomState>,
    pub(in crate::shared) count: Count,
    /// Until then, by our own clock, others may not have heard that the engine is back, and go on with their shares.
    pub(in crate::shared) apart_until: Timestamp,
    /// The engine is to be looked at now.
    pub(in crate::shared) look: bool,
    /// Why the last look at it failed.
    pub(in crate::shared) trouble: Option<String>,
    /// From a batch's first look or attempt until it stood.
    pub(in crate::shared) took: Took,
}

/// What group commit comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::shared) struct Count {
    /// Writes that stood.
    pub(in crate::shared) commits: u64,
    /// … that met another's.
    pub(in crate::shared) conflicts: u64,
    /// … of which nobody knows.
    pub(in crate::shared) unknown: u64,
    /// Looks at a cell.
    pub(in crate::shared) reads: u64,
    /// Events and permits written.
    pub(in crate::shared) items: u64,
    /// States that the engine had lost some of.
    pub(in crate::shared) lost: u64,
    pub(in crate::shared) granted: u64,
    pub(in crate::shared) reported: u64,
    pub(in crate::shared) refused: u64,
    pub(in crate::shared) cancelled: u64,
    pub(in crate::shared) late: u64,
}
