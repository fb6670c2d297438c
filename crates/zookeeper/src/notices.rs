//! The notices: one watch per subscribed cell, set again after each event.

use std::sync::Arc;

use politely_store::{EngineError, Notice, OnNotice};
use tokio::task::JoinHandle;
use zookeeper_client::{Client, Error, EventType, OneshotWatcher};

use crate::ZooKeeper;
use crate::cells::Found;

/// The subscription to a cell. Dropping it ends the subscription.
pub(crate) struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A znode as last seen by its watch: creation, version and content.
struct Seen {
    znode: Option<(i64, i32, Found)>,
    watcher: OneshotWatcher,
}

impl ZooKeeper {
    /// Subscribes to a cell. The watch is set when this returns.
    pub(crate) async fn begin_watching(
        &self,
        client: &Client,
        cell: &Arc<str>,
    ) -> Result<(), EngineError> {
        let Some(on_notice) = self.on_notice.get().cloned() else {
            return Ok(());
        };
        let path = self.path(cell);
        let seen = look(client, &path).await;
        let seen = seen.map_err(|why| self.sessions.place().refused(&path, &why))?;
        let following = follow(client.clone(), path, Arc::clone(cell), seen, on_notice);
        let watching = Watching(tokio::spawn(following));
        self.watching.lock().insert(Arc::clone(cell), watching);
        Ok(())
    }
}

/// Reads a znode and sets a watch on it, whether it exists or not.
async fn look(client: &Client, path: &str) -> Result<Seen, Error> {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((data, stat, watcher)) => {
                let znode = Some((stat.czxid, stat.version, Found::new(data)));
                return Ok(Seen { znode, watcher });
            }
            Err(Error::NoNode) => {}
            Err(why) => return Err(why),
        }
        let (stat, watcher) = client.check_and_watch_stat(path).await?;
        if stat.is_none() {
            let znode = None;
            return Ok(Seen { znode, watcher });
        }
    }
}

/// Sends the notices of a cell until its session ends.
async fn follow(client: Client, path: String, cell: Arc<str>, mut seen: Seen, on_notice: OnNotice) {
    loop {
        let before = seen
            .znode
            .take()
            .map(|(created, version, _)| (created, version));
        if seen.watcher.changed().await.event_type == EventType::Session {
            break;
        }
        seen = match look(&client, &path).await {
            Ok(seen) => seen,
            Err(_) => break,
        };
        let Some((created, version, found)) = &seen.znode else {
            continue;
        };
        let expected = match before {
            Some((before_created, before)) if before_created == *created => before + 1,
            _ => 0,
        };
        // Two changes in a row may cause one event, and the first may have been loud.
        let has_skipped = *version > expected;
        if has_skipped || found.is_loud && *version == expected {
            on_notice(Notice::Written {
                cell: cell.to_string(),
                value: found.value.clone(),
            });
        }
    }
    let cell = Some(cell.to_string());
    on_notice(Notice::Unheard { cell });
}
