//! How long the engine keeps a cell.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Host, OperatorNumbers};

/// The engine drops a cell that no process wrote for this long, unless [`keep`] needs it longer.
const KEEP: Duration = Duration::from_hours(24 * 30);
/// The settings of an operator do not end, so the engine keeps their cells for a hundred years.
const KEEP_SETTINGS: Duration = Duration::from_hours(24 * 366 * 100);

/// Returns how long the engine keeps a state that no process writes: beyond its hold and its
/// operator's settings.
pub(super) fn keep(host: &Host, now: Timestamp) -> Duration {
    if host.operator_numbers() != OperatorNumbers::default() {
        return KEEP_SETTINGS;
    }
    let hold = host
        .hold_ends(now)
        .map_or(Duration::ZERO, |at| at.since(now));
    KEEP + hold
}
