//! The policy in a cell of the engine, so that all coordinators that share keys follow it.
//!
//! A coordinator that starts with a policy file writes the file into the cell, and so does a change
//! of the file or a PUT. All coordinators read the cell, and write what they read to their own
//! files. So the last change wins everywhere, also after a restart.

use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use super::Coordinator;
use super::config_cell::{CellLog, FollowedCell};
use super::rules::PolicyRefused;
use crate::cells::unseal;

pub(super) const POLICY_CELL: &str = "politely:policy";
/// The time between two reads of the cell. A large policy is read less often: each such part of it
/// adds another second.
const READ_EVERY: Duration = Duration::from_secs(1);
const PART: usize = 256 << 10;

impl Coordinator {
    /// Writes `text` into the cell, if the policy is shared.
    ///
    /// # Errors
    /// The engine is unavailable, or refuses a value of this size. The error is one line.
    pub(super) async fn publish_policy(&self, text: &str) -> Result<(), PolicyRefused> {
        let Some(cell) = self.0.policy_cell.get() else {
            return Ok(());
        };
        let _one = cell.reading.lock().await;
        let change = |found: Option<&[u8]>| {
            let held = found.and_then(|value| unseal(&cell.name, value).ok());
            let is_new = held != Some(text.as_bytes());
            Ok::<_, PolicyRefused>(is_new.then(|| text.as_bytes().to_vec()))
        };
        let value = cell.update(change).await?;
        *cell.seen.lock() = value;
        Ok(())
    }

    /// Publishes a policy that was read from the file, or reads the policy of the engine.
    ///
    /// # Errors
    /// The engine is unavailable, or the cell holds no policy. The error is one line.
    pub(super) async fn refresh_policy(&self) -> Result<(), String> {
        let Some(cell) = self.0.policy_cell.get() else {
            return Ok(());
        };
        if let Some(text) = self.0.rules.unpublished() {
            // The policy of the own file is in force, and wins.
            cell.is_read.store(true, Release);
            self.publish_policy(&text)
                .await
                .map_err(|why| why.to_string())?;
            self.0.rules.published(&text);
            return Ok(());
        }
        let own = || Some(self.policy_text().into_bytes()).filter(|text| !text.is_empty());
        cell.follow(own, |value| self.follow_cell(cell, value))
            .await
    }

    async fn follow_cell(&self, cell: &FollowedCell, value: Vec<u8>) -> Result<(), String> {
        let content = unseal(&cell.name, &value).map_err(|why| why.to_string())?;
        let text = String::from_utf8_lossy(content).into_owned();
        let followed = self.follow_policy(text).await;
        // A text that this version does not understand is not read again and again.
        *cell.seen.lock() = Some(value);
        followed.map_err(|why| format!("the cell {POLICY_CELL:?}: {why}"))
    }

    /// Keeps the policy of this coordinator and that of the engine the same.
    pub(super) async fn keep_policy_read(self) {
        let mut log = CellLog::default();
        loop {
            log.note(POLICY_CELL, self.refresh_policy().await);
            let seen = self.0.policy_cell.get().map(|cell| {
                let seen = cell.seen.lock();
                seen.as_ref().map_or(0, Vec::len)
            });
            let parts = (seen.unwrap_or(0) / PART) as u32;
            tokio::time::sleep(READ_EVERY * (1 + parts)).await;
        }
    }
}
