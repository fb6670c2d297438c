//! How long the engine keeps a cell.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Host, OperatorNumbers};

/// The engine drops a cell that no process wrote for this long, unless [`keep`] needs it longer.
const KEEP: Duration = Duration::from_hours(24 * 30);
/// The settings of an operator do not end, so the engine keeps their cells for a hundred years.
const KEEP_SETTINGS: Duration = Duration::from_hours(24 * 366 * 100);
/// The longest window of a declared limit has 366 days.
const KEEP_SPENT: Duration = Duration::from_hours(24 * 400);

/// Returns how long the engine keeps a state that no process writes: beyond its hold, its
/// declared limits and its operator's settings.
pub(super) fn keep(host: &Host, now: Timestamp) -> Duration {
    if host.operator_numbers() != OperatorNumbers::default() || host.own_limits().is_some() {
        return KEEP_SETTINGS;
    }
    if host.has_spent() {
        return KEEP_SPENT;
    }
    let hold = host
        .hold_ends(now)
        .map_or(Duration::ZERO, |at| at.since(now));
    KEEP + hold
}
