//! A log in true time: for the checks, for the reader of a failure, and for the digest.

use std::collections::VecDeque;
use std::fmt::{self, Display, Write as _};

use super::dice::Micros;

/// The number of kept lines.
const KEPT: usize = 60;

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Fault(super::plan::Fault),
    Over(super::plan::Fault),
    /// The clients of a zombie master reach the new one.
    Joins,
    Asks {
        ticket: u64,
        key: usize,
        once: bool,
    },
    GivesUp {
        ticket: u64,
    },
    Granted {
        ticket: u64,
        lease: u64,
        slots: u16,
        start: u64,
    },
    Refused {
        ticket: u64,
        reason: politely_core::host::Reason,
    },
    GivesBack {
        key: usize,
        lease: u64,
    },
    Leaves {
        key: usize,
        lease: u64,
    },
    Ends {
        key: usize,
        lease: u64,
        how: End,
    },
    Writes {
        key: usize,
        number: u64,
        done: bool,
    },
    Renews {
        key: usize,
        lease: u64,
    },
    NoAnswer {
        call: u64,
    },
    Heartbeat {
        run: u64,
        ok: bool,
        /// The offset of shared time from the engine's clock at the beginning, in microseconds.
        ahead: i64,
    },
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Ok,
    Refused,
    RetryAfter(Micros),
    Timeout,
    Cancelled,
    LeaseOver,
    Killed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    at: Micros,
    who: Option<usize>,
    what: What,
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6}", self.at as f64 / 1e6)?;
        match self.who {
            Some(who) => write!(f, "  c{who}  {:?}", self.what),
            None => write!(f, "  --  {:?}", self.what),
        }
    }
}

/// The last lines, and a digest of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    lines: VecDeque<Line>,
    pub(super) keep_all: bool,
    digest: u64,
    pub(super) count: u64,
}

impl Log {
    pub(super) fn note(&mut self, at: Micros, who: Option<usize>, what: What) {
        let line = Line { at, who, what };
        if self.lines.len() >= KEPT && !self.keep_all {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.count += 1;
        let (tag, one, other) = numbers(&what);
        for word in [at, who.map_or(u64::MAX, |who| who as u64), tag, one, other] {
            self.mix(word);
        }
    }

    /// Adds bytes to the digest.
    pub(super) fn take_in(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    const fn mix(&mut self, word: u64) {
        let mut rng = politely_core::Rng::new(self.digest ^ word);
        self.digest = rng.next_u64();
    }

    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn tail(&self) -> String {
        let mut tail = String::new();
        for line in &self.lines {
            let _ = writeln!(tail, "{line}");
        }
        tail
    }
}

/// Returns a line as numbers for the digest, which is faster than as text.
fn numbers(what: &What) -> (u64, u64, u64) {
    match *what {
        What::Fault(fault) => (1, fault.lasts(), 0),
        What::Over(fault) => (2, fault.lasts(), 0),
        What::Asks { ticket, key, .. } => (3, ticket, key as u64),
        What::GivesUp { ticket } => (4, ticket, 0),
        What::Granted { ticket, lease, .. } => (5, ticket, lease),
        What::Refused { ticket, .. } => (6, ticket, 0),
        What::GivesBack { key, lease } => (7, key as u64, lease),
        What::Leaves { key, lease } => (8, key as u64, lease),
        What::Ends { key, lease, .. } => (9, key as u64, lease),
        What::Writes { key, number, done } => (10, key as u64, number << 1 | u64::from(done)),
        What::Renews { key, lease } => (11, key as u64, lease),
        What::NoAnswer { call } => (12, call, 0),
        What::Heartbeat { run, ok, .. } => (13, run, u64::from(ok)),
        What::Joins => (14, 0, 0),
    }
}
