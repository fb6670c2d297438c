//! A write of a replica: what it was about, and what those who wait hear of it.

use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::host::{Ask, Grant, Wait};

use crate::engine::Write;
use crate::record::Record;

/// Who waits here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) ask: Ask,
    /// It will have an answer now, be it no.
    pub(crate) once: bool,
}

/// A permit in a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingGrant {
    pub(crate) turn: Arrival,
    pub(crate) ticket: u64,
    pub(crate) waiter: Waiter,
    pub(crate) grant: Grant,
    /// When it starts by our own clock, as far as was known when it was granted: time may be put back until it is heard of.
    pub(crate) starts: Timestamp,
    /// The cell was made since our last look, perhaps after another was lost: it stands if the engine has lost nothing since this number
    /// of its epochs.
    pub(crate) unsure: Option<u32>,
}

pub(super) struct Commit {
    pub(super) number: u64,
    pub(super) value: Arc<[u8]>,
    pub(super) cell: Record,
    pub(super) events: usize,
    pub(super) granted: Vec<PendingGrant>,
    pub(super) began: Timestamp,
}

/// What is to be done for a replica.
pub(crate) enum Action {
    Write(Write),
    Read,
    /// Nothing before then, by our own clock.
    Wait(Timestamp),
}

/// What came of it for those who wait.
#[derive(Debug)]
pub(crate) enum WaiterReply {
    Granted(PendingGrant),
    Refused(u64, Wait),
}
