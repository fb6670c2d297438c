//! The roster of the coordinators that count for the audit, in a cell of the engine.

use std::sync::Arc;
use std::time::Duration;

use politely::cells::Engine;
use politely::core::Timestamp;
use tokio::sync::Mutex;

use crate::cells::{CellError, Cells, unseal};
use crate::usage::Usage;
use crate::usage::roster::Roster;

const NAME: &str = "politely:audit";
/// The lifetime of a roster that is not written again: as long as the audit.
const KEEP: Duration = Duration::from_hours(30 * 24);

pub(crate) struct RosterCell {
    cells: Cells,
    name: Arc<str>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    value: Option<Vec<u8>>,
    /// Whether this coordinator took its entry away. It gives no sign after that.
    has_left: bool,
}

impl RosterCell {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            cells: Cells::new(engine),
            name: NAME.into(),
            seen: Mutex::default(),
        }
    }

    /// Notes that the fleet knows all counts of this coordinator until `last`.
    pub(super) async fn sign(
        &self,
        usage: &Usage,
        last: Timestamp,
        now: Timestamp,
    ) -> Result<(), CellError> {
        let mut seen = self.seen.lock().await;
        if seen.has_left {
            return Ok(());
        }
        self.change(&mut seen, usage, |roster| {
            roster.sign(usage.me(), last, now);
        })
        .await
    }

    /// Takes the entry of this coordinator away, since the fleet knows all its counts.
    pub(super) async fn leave(&self, usage: &Usage) -> Result<(), CellError> {
        let mut seen = self.seen.lock().await;
        seen.has_left = true;
        self.change(&mut seen, usage, |roster| roster.leave(usage.me()))
            .await
    }

    /// Changes the roster. If the engine lost it, the present one is the one that was read last.
    async fn change(
        &self,
        seen: &mut Seen,
        usage: &Usage,
        change: impl Fn(&mut Roster),
    ) -> Result<(), CellError> {
        let known = usage.fleet_roster();
        let mut changed = Roster::default();
        let before = seen.value.take();
        let value = self.cells.update(&self.name, before, KEEP, |found| {
            changed = (found.and_then(|value| self.read(value))).unwrap_or_else(|| known.clone());
            changed.join_lost(&known);
            change(&mut changed);
            Ok::<_, CellError>(Some(serde_json::to_vec(&changed).unwrap_or_default()))
        });
        seen.value = value.await?;
        usage.set_fleet_roster(changed);
        Ok(())
    }

    fn read(&self, value: &[u8]) -> Option<Roster> {
        serde_json::from_slice(unseal(&self.name, value).ok()?).ok()
    }
}
