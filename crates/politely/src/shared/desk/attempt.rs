//! A write of a desk: what it was about, and what those who wait hear of it.

use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::host::{Ask, Grant, Wait};

use super::super::cell::Cell;
use crate::cells::Write;
use crate::waiters::Turn;

/// Who waits here.
#[derive(Clone, Copy, Debug)]
pub(in crate::shared) struct Waiter {
    pub(in crate::shared) ask: Ask,
    /// It will have an answer now, be it no.
    pub(in crate::shared) once: bool,
}

/// A permit in a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::shared) struct Granting {
    pub(in crate::shared) turn: Turn,
    pub(in crate::shared) ticket: u64,
    pub(in crate::shared) waiter: Waiter,
    pub(in crate::shared) grant: Grant,
    /// When it starts by our own clock, as far as was known when it was granted: time may be put back until it is heard of.
    pub(in crate::shared) starts: Timestamp,
    /// The cell was made since our last look, perhaps after another was lost: it stands if the engine has lost nothing since this number
    /// of its epochs.
    pub(in crate::shared) unsure: Option<u32>,
}

pub(super) struct Attempt {
    pub(super) number: u64,
    pub(super) value: Arc<[u8]>,
    pub(super) cell: Cell,
    pub(super) events: usize,
    pub(super) granted: Vec<Granting>,
    pub(super) began: Timestamp,
}

/// What is to be done for a desk.
pub(in crate::shared) enum Step {
    Write(Write),
    Read,
    /// Nothing before then, by our own clock.
    Wait(Timestamp),
}

/// What came of it for those who wait.
#[derive(Debug)]
pub(in crate::shared) enum Told {
    Granted(Granting),
    No(u64, Wait),
}
