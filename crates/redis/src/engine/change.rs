//! The change of a cell: compare its version, set it, notify the subscribers.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use crate::{Command, Trouble};
use redis::{Cmd, Script, Value};

use super::{Redis, held};
use politely_store::{EngineError, Version, Write, Written};

/// A cell that does not exist reads as the empty string, which is then the expected version. A
/// server without sharded pub/sub still sets the cell.
const CHANGE: &str = "\
local cell, call = KEYS[1], redis.call
if call('GETRANGE', cell, '0', '15') ~= ARGV[1] then return call('GET', cell) end
call('SET', cell, ARGV[2], 'PX', ARGV[3])
if ARGV[4] then redis.pcall('SPUBLISH', cell, ARGV[2]) end
return 1";

/// The script and its hash.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CHANGE));

/// The bytes of the arguments apart from name and values: `EVALSHA`, the hash, `1`, a version,
/// milliseconds, `1`.
const REST: usize = 7 + 40 + 1 + Version::LEN + 20 + 1;

/// A thousand years. A server adds the time since 1970 to it, in a signed number of milliseconds.
const KEEP_MS_MAX: u128 = 1000 * 366 * 24 * 3600 * 1000;

/// The form of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The server's own compare-and-set, which not every server has.
    Native,
    /// The script by its hash.
    Plain,
    /// The script in full.
    Whole,
}

impl Redis {
    /// Makes the changes. A change is sent again in another form if the server does not know the
    /// first.
    pub(super) async fn change(&self, writes: &[Write]) -> Vec<Result<Written, EngineError>> {
        let is_plain = self.plain.load(Ordering::Relaxed);
        let first = |write: &Write| match write.before {
            // The native form needs the whole value and notifies no subscriber.
            Some(_) if !write.notify && !is_plain => How::Native,
            _ => How::Plain,
        };
        let mut written = vec![None; writes.len()];
        let mut due: Vec<_> = writes.iter().map(first).enumerate().collect();
        while !due.is_empty() {
            let commands = due.iter().map(|&(at, how)| Command {
                key: &writes[at].cell,
                words: say(&writes[at], how),
            });
            let answers = self.servers.change(commands.collect()).await;
            let mut again = Vec::new();
            for ((at, how), answer) in due.into_iter().zip(answers) {
                match (how, answer.as_ref().err().and_then(Trouble::code)) {
                    (How::Native, Some("ERR")) => {
                        self.plain.store(true, Ordering::Relaxed);
                        again.push((at, How::Plain));
                    }
                    (How::Plain, Some("NOSCRIPT")) => again.push((at, How::Whole)),
                    _ => written[at] = Some(came(&writes[at], answer)),
                }
            }
            due = again;
        }
        let written = written.into_iter();
        let answered = "the loop ends when every write has an answer";
        written.map(|it| it.expect(answered)).collect()
    }
}

fn say(write: &Write, how: How) -> Cmd {
    let before = write.before.as_deref().filter(|_| how == How::Native);
    let bytes = before.map_or(0, <[u8]>::len) + write.value.len();
    let mut call = Cmd::with_capacity(8, REST + write.cell.len() + bytes);
    let keep_ms = write.keep.as_millis().clamp(1, KEEP_MS_MAX) as u64;
    match how {
        How::Native => {
            call.arg("SET").arg(&*write.cell).arg(&write.value[..]);
            call.arg("IFEQ").arg(before);
            call.arg("GET").arg("PX").arg(keep_ms);
            return call;
        }
        How::Plain => call.arg("EVALSHA").arg(SCRIPT.get_hash()),
        How::Whole => call.arg("EVAL").arg(CHANGE),
    };
    let expected = write.expected.as_ref().map_or(&[][..], |it| &it.0);
    call.arg(1).arg(&*write.cell).arg(expected);
    call.arg(&write.value[..]).arg(keep_ms);
    call.arg(write.notify.then_some(1));
    call
}

fn came(write: &Write, answer: Result<Value, Trouble>) -> Result<Written, EngineError> {
    match answer {
        Ok(answer) if is_done(write, &answer) => Ok(Written::Done),
        // A conflict changes nothing, so no replica needs to acknowledge it.
        Err(Trouble::Unacknowledged { answer, .. }) if !is_done(write, &answer) => {
            held(Ok(answer)).map(Written::Conflict)
        }
        answer => held(answer).map(Written::Conflict),
    }
}

/// Returns whether the change was made. The script returns 1. The native form returns the value
/// before, which has the expected version unless there was a conflict.
fn is_done(write: &Write, answer: &Value) -> bool {
    match answer {
        Value::Int(_) => true,
        Value::BulkString(before) => {
            Version::of(before).is_some_and(|it| write.expected == Some(it))
        }
        _ => false,
    }
}
