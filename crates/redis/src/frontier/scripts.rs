//! The scripts, and how many of them are sent at once.
//!
//! A script that a server has forgotten is sent again in full.

use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use tokio::sync::Semaphore;

use crate::{Command, Servers, Trouble};

/// The most scripts of one round trip, and about the most bytes. An answer must come within half a
/// second, also over a slow wire.
const CALLS_MAX: usize = 64;
const BYTES_MAX: usize = 128 << 10;
/// The most bytes under way. More would only wait in the server.
const UNDER_WAY_MAX: usize = 4 * BYTES_MAX;

/// A script and its hash.
pub(super) struct Code {
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! code {
    ($name:ident, $($file:literal),+) => {
        pub(super) static $name: Code = Code {
            text: concat!($(include_str!($file)),+),
            hash: LazyLock::new(|| Script::new($name.text).get_hash().to_owned()),
        };
    };
}

code!(PUT, "domain.lua", "put.lua");
code!(TAKE, "domain.lua", "take.lua");
code!(GIVE_BACK, "domain.lua", "give_back.lua");
code!(REVISE, "domain.lua", "revise.lua");
code!(OPERATE, "domain.lua", "operate.lua");
code!(LOOK, "domain.lua", "look.lua");
code!(NOTE, "note.lua");
code!(NEXT, "next.lua");
code!(TOKENS, "tokens.lua");
code!(FORGET, "domain.lua", "forget.lua");
code!(ENDED, "ended.lua");
code!(CRAWL, "crawl.lua");

/// A call of a script. All keys have the hash tag of the first.
pub(super) struct Call {
    pub(super) code: &'static Code,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn new(code: &'static Code, keys: impl Into<Vec<String>>) -> Self {
        Self {
            code,
            keys: keys.into(),
            args: Vec::new(),
        }
    }

    pub(super) fn arg(&mut self, arg: impl AsRef<[u8]>) -> &mut Self {
        self.args.push(arg.as_ref().to_vec());
        self
    }

    pub(super) fn number(&mut self, number: impl Copy + ToString) -> &mut Self {
        self.arg(number.to_string())
    }

    fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(String::len).sum();
        keys + self.args.iter().map(|arg| arg.len() + 8).sum::<usize>() + 64
    }

    /// Returns the bytes for which it counts. A small script takes time as well.
    fn weight(&self) -> usize {
        self.bytes().max(BYTES_MAX / CALLS_MAX)
    }

    fn command(&self, is_whole: bool) -> Command<'_> {
        let mut words = Cmd::with_capacity(3 + self.keys.len() + self.args.len(), self.bytes());
        if is_whole {
            words.arg("EVAL").arg(self.code.text);
        } else {
            words.arg("EVALSHA").arg(&*self.code.hash);
        }
        words.arg(self.keys.len());
        for key in &self.keys {
            words.arg(key);
        }
        for arg in &self.args {
            words.arg(&arg[..]);
        }
        Command {
            key: &self.keys[0],
            words,
        }
    }
}

/// Runs scripts.
pub(super) struct Runner {
    pub(super) servers: Servers,
    room: Semaphore,
}

impl Runner {
    pub(super) fn new(servers: Servers) -> Self {
        Self {
            servers,
            room: Semaphore::new(UNDER_WAY_MAX),
        }
    }

    /// Runs scripts, and returns their answers in order.
    pub(super) async fn run(&self, calls: &[Call]) -> Vec<Result<Value, Trouble>> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut rest = calls;
        while !rest.is_empty() {
            let (trip, later) = rest.split_at(trip_len(rest));
            answers.extend(self.run_trip(trip).await);
            rest = later;
        }
        answers
    }

    async fn run_trip(&self, calls: &[Call]) -> Vec<Result<Value, Trouble>> {
        // The semaphore is never closed.
        let weight: usize = calls.iter().map(Call::weight).sum();
        let room = self.room.acquire_many(weight.min(UNDER_WAY_MAX) as u32);
        let _room = room.await;
        let commands = calls.iter().map(|call| call.command(false));
        let mut answers = self.servers.change(commands.collect()).await;
        let is_forgotten = |answer: &Result<Value, Trouble>| {
            answer.as_ref().err().and_then(Trouble::code) == Some("NOSCRIPT")
        };
        let again: Vec<_> = (0..calls.len())
            .filter(|at| is_forgotten(&answers[*at]))
            .collect();
        if !again.is_empty() {
            let commands = again.iter().map(|at| calls[*at].command(true));
            let whole = self.servers.change(commands.collect()).await;
            for (at, answer) in again.into_iter().zip(whole) {
                answers[at] = answer;
            }
        }
        answers
    }

    /// Runs one script.
    pub(super) async fn run_one(&self, call: Call) -> Result<Value, Trouble> {
        let mut answers = self.run(&[call]).await;
        answers.pop().unwrap_or(Err(Trouble::Restless))
    }
}

/// Returns how many of the first calls make one round trip.
fn trip_len(calls: &[Call]) -> usize {
    let mut bytes = 0;
    let fits = calls.iter().take_while(|call| {
        bytes += call.weight();
        bytes <= BYTES_MAX
    });
    fits.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_bounded_by_calls_and_bytes() {
        let call = |bytes: usize| {
            let mut call = Call::new(&LOOK, ["key".to_owned()]);
            call.arg(vec![0; bytes]);
            call
        };
        let small: Vec<_> = (0..1_000).map(|_| call(1)).collect();
        assert_eq!(trip_len(&small), CALLS_MAX);
        let large: Vec<_> = (0..9).map(|_| call(BYTES_MAX / 3)).collect();
        assert_eq!(trip_len(&large), 2);
        assert_eq!(trip_len(&[call(2 * BYTES_MAX)]), 1);
    }
}
