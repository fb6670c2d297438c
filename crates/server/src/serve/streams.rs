//! Answers over HTTP/2 that their callers never read: the permits in them are taken back.
//!
//! A caller that gives up resets the stream of its call, and its connection stays open. hyper
//! ignores a reset that arrives after the answer was written. So [`super::frames`] watches the
//! frames of the connection, and this table connects answers with streams by their content.
//!
//! | an answer | is taken back if |
//! | --- | --- |
//! | that was not written completely | its stream or its connection ends |
//! | that was written | its stream is reset, or the connection is reset before another request |
//!
//! In doubt an answer is not taken back, because its permit may be in use. Its slot then returns
//! with the lease.

use std::time::Duration;

use axum::body::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::unread::Granted;

/// The time after which an answer counts as read.
const UNREAD_WITHIN: Duration = Duration::from_secs(5);

/// The answers of one connection that grant permits.
#[derive(Default)]
pub(super) struct Streams(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    /// Answers that were handed to HTTP/2 and were not seen in its output yet.
    waiting: HashMap<u64, Waiting, foldhash::fast::RandomState>,
    /// Answers that were written, by stream.
    written: HashMap<u32, Written, foldhash::fast::RandomState>,
}

struct Waiting {
    /// The first chunk of the answer. It contains the names of permits, which are unique.
    chunk: Bytes,
    granted: Granted,
    /// HTTP/2 holds the chunk no more: the chunk was copied into the output, or discarded.
    is_dropped: bool,
    /// A part of the chunk may have been written as a frame of its own.
    is_split: bool,
}

struct Written {
    at: Instant,
    granted: Granted,
    /// The caller has sent another request since.
    is_followed: bool,
}

impl Streams {
    /// Notes that `chunk`, the first part of an answer, is handed to HTTP/2. Returns its number for
    /// [`Streams::dropped`].
    pub(super) fn handed(&self, chunk: Bytes, granted: Granted) -> u64 {
        let mut state = self.0.lock();
        let id = state.next;
        state.next += 1;
        let waiting = Waiting {
            chunk,
            granted,
            is_dropped: false,
            is_split: false,
        };
        state.waiting.insert(id, waiting);
        id
    }

    /// Notes that HTTP/2 does not hold the chunk any more.
    pub(super) fn dropped(&self, id: u64) {
        if let Some(waiting) = self.0.lock().waiting.get_mut(&id) {
            waiting.is_dropped = true;
        }
    }

    /// Returns whether chunks wait for their frames. Written frames are then compared with them.
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// Notes that a DATA frame was written.
    pub(super) fn wrote(&self, stream: u32, payload: &[u8]) {
        let state = &mut *self.0.lock();
        let mut found = None;
        for (&id, waiting) in &mut state.waiting {
            if waiting.chunk == payload {
                found = Some(id);
            } else if waiting.chunk.starts_with(payload) {
                waiting.is_split = true;
            }
        }
        let Some(Waiting { granted, .. }) = found.and_then(|id| state.waiting.remove(&id)) else {
            return;
        };
        let written = Written {
            at: Instant::now(),
            granted,
            is_followed: false,
        };
        state
            .written
            .retain(|_, written| written.at.elapsed() < UNREAD_WITHIN);
        state.written.insert(stream, written);
    }

    /// Notes that all output of HTTP/2 so far was written.
    pub(super) fn flushed(&self) {
        self.take_unwritten(|waiting| waiting.is_dropped);
    }

    /// Notes that the caller has sent a request.
    pub(super) fn asked(&self) {
        for written in self.0.lock().written.values_mut() {
            written.is_followed = true;
        }
    }

    /// Notes that the caller reset a stream.
    pub(super) fn reset(&self, stream: u32) {
        let written = self.0.lock().written.remove(&stream);
        if let Some(Written { at, granted, .. }) = written
            && at.elapsed() < UNREAD_WITHIN
        {
            granted.take_back();
        }
    }

    /// Notes the end of the connection. `is_reset` is true if the caller reset it.
    pub(super) fn ended(&self, is_reset: bool) {
        self.take_unwritten(|_| true);
        let written = std::mem::take(&mut self.0.lock().written);
        for Written {
            at,
            granted,
            is_followed,
        } in written.into_values()
        {
            if is_reset && !is_followed && at.elapsed() < UNREAD_WITHIN {
                granted.take_back();
            }
        }
    }

    /// Takes back the answers that were not written and never will be.
    fn take_unwritten(&self, is_over: impl Fn(&Waiting) -> bool) {
        let over: Vec<_> = {
            let mut state = self.0.lock();
            if state.waiting.is_empty() {
                return;
            }
            let over = state.waiting.extract_if(|_, waiting| is_over(waiting));
            over.collect()
        };
        for (_, waiting) in over {
            if !waiting.is_split {
                waiting.granted.take_back();
            }
        }
    }
}
