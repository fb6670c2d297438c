//! Asking the coordinator again and again: what is wanted now, at once; the same, once a second.

use std::sync::mpsc::Sender;
use std::time::Duration;

use politely::wire::{FleetStats, KeyDetail, KeyPage, KeysQuery};
use tokio::sync::watch;

use super::client::{Client, Fault};
use super::state::Event;

/// From an answer to the next question.
const EVERY: Duration = Duration::from_secs(1);
/// A coordinator that is away is not asked less often than this.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// What the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Part of the table.
    Table(KeysQuery),
    /// One key.
    Key(String),
}

/// What the coordinator says of it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) wanted: Wanted,
    pub(super) fleet: FleetStats,
    pub(super) shown: Shown,
}

#[derive(Debug)]
pub(super) enum Shown {
    Table(KeyPage),
    /// Absent: the key is not known.
    Key(Option<Box<KeyDetail>>),
}

/// Asks until nobody wants anything any more.
pub(super) async fn poll(client: Client, mut wanted: watch::Receiver<Wanted>, tell: Sender<Event>) {
    let mut failures = 0;
    loop {
        let asked = wanted.borrow_and_update().clone();
        let seen = tokio::select! {
            seen = look(&client, asked) => seen,
            changed = wanted.changed() => match changed {
                // The answer would be overtaken.
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        failures = if seen.is_ok() { 0 } else { failures + 1 };
        let event = seen.map_or_else(Event::Away, |seen| Event::Seen(Box::new(seen)));
        if tell.send(event).is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause(failures)) => {}
            changed = wanted.changed(), if failures == 0 => if changed.is_err() { return },
        }
    }
}

async fn look(client: &Client, wanted: Wanted) -> Result<Seen, Fault> {
    let fleet = client.stats().await?;
    let shown = match &wanted {
        Wanted::Table(query) => Shown::Table(client.keys(query).await?),
        Wanted::Key(name) => match client.key(name).await {
            Err(Fault::Unknown) => Shown::Key(None),
            detail => Shown::Key(Some(Box::new(detail?))),
        },
    };
    Ok(Seen {
        wanted,
        fleet,
        shown,
    })
}

/// A second; after failures in a row twice as long each time.
fn pause(failures: u32) -> Duration {
    let doubled = EVERY.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let seconds = [0, 1, 2, 3, 4, 5, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(seconds, [1, 1, 2, 4, 8, 8, 8]);
    }
}
