//! The policy in a cell of the engine, so that all coordinators that share keys follow it.
//!
//! A coordinator that starts with a policy file writes the file into the cell, and so does a change
//! of the file or a PUT. All coordinators read the cell, and write what they read to their own
//! files. So the last change wins everywhere, also after a restart.

use std::time::Duration;

use super::Coordinator;
use super::config_cell::{ConfigCell, unseal};
use super::rules::PolicyRefused;

pub(super) const POLICY_CELL: &str = "politely:policy";
/// The time between two reads of the cell. A large policy is read less often: each such part of it
/// adds another second.
const READ_EVERY: Duration = Duration::from_secs(1);
const PART: usize = 256 << 10;
/// The most attempts of a change while other coordinators write.
const TRIES: u32 = 16;

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
        let failed = PolicyRefused::Engine;
        for _ in 0..TRIES {
            let held = cell.read().await.map_err(failed)?;
            if held.as_deref().is_some_and(|held| holds(held, text)) {
                *cell.seen.lock() = held;
                return Ok(());
            }
            let value = cell.seal(text.as_bytes());
            if cell.write(held, &value).await.map_err(failed)? {
                *cell.seen.lock() = Some(value);
                return Ok(());
            }
        }
        let why = "other coordinators change the policy all the time".to_owned();
        Err(PolicyRefused::Engine(why))
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
            self.publish_policy(&text)
                .await
                .map_err(|why| why.to_string())?;
            self.0.rules.published(&text);
            return Ok(());
        }
        let _one = cell.reading.lock().await;
        let Some(value) = cell.read().await? else {
            return self.publish_again(cell).await;
        };
        if cell.seen.lock().as_deref() == Some(&*value) {
            return Ok(());
        }
        let content = unseal(POLICY_CELL, &value)?;
        let text = String::from_utf8_lossy(content).into_owned();
        let followed = self.follow_policy(text).await;
        // A text that this version does not understand is not read again and again.
        *cell.seen.lock() = Some(value);
        followed.map_err(|why| format!("the cell {POLICY_CELL:?}: {why}"))
    }

    /// Writes the policy in force after the engine lost the cell.
    async fn publish_again(&self, cell: &ConfigCell) -> Result<(), String> {
        let text = self.policy_text();
        if !text.is_empty() {
            let value = cell.seal(text.as_bytes());
            if cell.write(None, &value).await? {
                *cell.seen.lock() = Some(value);
            }
        }
        Ok(())
    }

    /// Keeps the policy of this coordinator and that of the engine the same.
    pub(super) async fn keep_policy_read(self) {
        let mut said = None;
        loop {
            let read = self.refresh_policy().await;
            // An unavailable engine is logged elsewhere.
            let wrong = read.err().filter(|why| why.contains(POLICY_CELL));
            if wrong != said {
                if let Some(why) = &wrong {
                    tracing::error!("{why}");
                }
                said = wrong;
            }
            let seen = self.0.policy_cell.get().map(|cell| {
                let seen = cell.seen.lock();
                seen.as_ref().map_or(0, Vec::len)
            });
            let parts = (seen.unwrap_or(0) / PART) as u32;
            tokio::time::sleep(READ_EVERY * (1 + parts)).await;
        }
    }
}

fn holds(value: &[u8], text: &str) -> bool {
    unseal(POLICY_CELL, value).is_ok_and(|content| content == text.as_bytes())
}
