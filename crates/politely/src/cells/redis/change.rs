//! The change of one cell: compare its version, set it, tell those who watch.

use std::sync::LazyLock;

use redis::{Cmd, Script, Value};

use super::super::{EngineError, Version, Write, Written};
use super::servers::{How, Question};
use super::{bytes, trouble};

/// A cell that is not there reads as empty, which is what is expected of it then. A server that cannot tell those who
/// watch still sets.
const CHANGE: &str = "\
local cell, call = KEYS[1], redis.call
if call('GETRANGE', cell, '0', '15') ~= ARGV[1] then return call('GET', cell) end
call('SET', cell, ARGV[2], 'PX', ARGV[3])
if ARGV[4] then redis.pcall('SPUBLISH', cell, ARGV[2]) end
return 1";

/// Knows the script's hash.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CHANGE));

/// Bytes of the arguments beside name, version and value: `EVALSHA`, the hash, `1`, milliseconds, `1`.
const REST: usize = 7 + 40 + 1 + 20 + 1;

/// One for each cell.
pub(super) struct Changes<'a>(pub(super) &'a [Write]);

impl Question for Changes<'_> {
    fn say(&self, index: usize, how: How) -> Option<Cmd> {
        let write = &self.0[index];
        match how {
            How::Native => native(write),
            How::Plain => Some(scripted(write, false)),
            How::Whole => Some(scripted(write, true)),
        }
    }

    /// The server answers what was there before.
    fn translate(&self, index: usize, answer: Value) -> Value {
        let expected = self.0[index].expected;
        match &answer {
            Value::BulkString(before) if Version::of(before) == expected => Value::Int(1),
            _ => answer,
        }
    }
}

/// The server's own compare-and-set, for who knows the whole value and need not tell anybody.
fn native(write: &Write) -> Option<Cmd> {
    let before = write.before.as_deref().filter(|_| !write.notify)?;
    let bytes = REST + write.cell.len() + before.len() + write.value.len();
    let mut set = Cmd::with_capacity(8, bytes);
    set.arg("SET").arg(&*write.cell).arg(&write.value[..]);
    set.arg("IFEQ").arg(before);
    set.arg("GET").arg("PX").arg(keep_ms(write));
    Some(set)
}

/// The script's call, with the whole of it if the server has `forgotten` it, which makes it remember.
fn scripted(write: &Write, forgotten: bool) -> Cmd {
    let bytes = REST + write.cell.len() + Version::LEN + write.value.len();
    let mut call = Cmd::with_capacity(7, bytes);
    if forgotten {
        call.arg("EVAL").arg(CHANGE);
    } else {
        call.arg("EVALSHA").arg(SCRIPT.get_hash());
    }
    let expected = write
        .expected
        .as_ref()
        .map_or(&[][..], |version| &version.0);
    call.arg(1)
        .arg(&*write.cell)
        .arg(expected)
        .arg(&write.value[..])
        .arg(keep_ms(write));
    if write.notify {
        call.arg(1);
    }
    call
}

fn keep_ms(write: &Write) -> u64 {
    let keep_ms = u64::try_from(write.keep.as_millis()).unwrap_or(u64::MAX);
    keep_ms.clamp(1, KEEP_MS_MAX)
}

/// A thousand years: servers add the time since 1970 in a signed number of milliseconds.
const KEEP_MS_MAX: u64 = 1000 * 366 * 24 * 3600 * 1000;

pub(super) fn written(answer: Value) -> Result<Written, EngineError> {
    match answer {
        Value::Int(_) => Ok(Written::Done),
        value => bytes(value)
            .map(Written::Conflict)
            .map_err(|odd| trouble::odd(&odd)),
    }
}
