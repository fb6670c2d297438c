//! Calls into code that panics on damaged files. The panic becomes an error, and prints nothing.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Returns the result of `call`, or the text of its panic. Values that `call` borrows must not be
/// used after a panic.
pub(super) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let was_quiet = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    QUIET.set(was_quiet);
    result.map_err(|panic| text(&*panic))
}

/// Returns the first line of a panic's message.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let line = text.and_then(|text| text.lines().next());
    line.unwrap_or("unknown failure").to_owned()
}
