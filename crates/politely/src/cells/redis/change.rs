//! The change of one cell: compare its version, set it, tell those who watch.

use std::sync::LazyLock;

use redis::{Cmd, Script, Value};

use super::super::{Version, Write};
use super::each::{Ask, How};

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

/// Bytes of the arguments beside name and values: `EVALSHA`, the hash, `1`, a version, milliseconds, `1`.
const REST: usize = 7 + 40 + 1 + Version::LEN + 20 + 1;

/// A thousand years: servers add the time since 1970 in a signed number of milliseconds.
const KEEP_MS_MAX: u128 = 1000 * 366 * 24 * 3600 * 1000;

impl Ask for Write {
    fn cell(&self) -> &str {
        &self.cell
    }

    /// By the server's own compare-and-set, for who knows the whole value and need not tell anybody.
    fn has_native(&self) -> bool {
        self.before.is_some() && !self.notify
    }

    fn say(&self, how: How) -> Cmd {
        let before = self.before.as_deref().filter(|_| how == How::Native);
        let bytes = before.map_or(0, <[u8]>::len) + self.value.len();
        let mut call = Cmd::with_capacity(8, REST + self.cell.len() + bytes);
        let keep_ms = self.keep.as_millis().clamp(1, KEEP_MS_MAX) as u64;
        match how {
            How::Native => {
                call.arg("SET").arg(&*self.cell).arg(&self.value[..]);
                call.arg("IFEQ").arg(before);
                call.arg("GET").arg("PX").arg(keep_ms);
                return call;
            }
            How::Plain => call.arg("EVALSHA").arg(SCRIPT.get_hash()),
            How::Whole => call.arg("EVAL").arg(CHANGE),
        };
        let expected = self.expected.as_ref().map_or(&[][..], |it| &it.0);
        call.arg(1).arg(&*self.cell).arg(expected);
        call.arg(&self.value[..]).arg(keep_ms);
        call.arg(self.notify.then_some(1));
        call
    }

    /// The script says 1, the server's own words what was there before; a conflict never has the version that was expected.
    fn is_done(&self, answer: &Value) -> bool {
        match answer {
            Value::Int(_) => true,
            Value::BulkString(before) => Version::of(before) == self.expected,
            _ => false,
        }
    }
}
