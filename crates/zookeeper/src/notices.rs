//! The notices: one watch per subscribed cell, set again after each event.

use std::sync::Arc;

use politely_store::{Notice, OnNotice};
use tokio::task::JoinHandle;
use zookeeper_client::{Client, Error, EventType, OneshotWatcher, Stat};

use crate::cells::parse;
use crate::{Result, ZooKeeper};

/// The subscription to a cell. Dropping it ends the subscription.
pub(crate) struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A znode as last seen by its watch, and the watch.
type Seen = (Option<(Stat, Vec<u8>)>, OneshotWatcher);

impl ZooKeeper {
    /// Subscribes to a cell. The watch is set when this returns.
    pub(crate) async fn begin_watching(&self, client: &Client, cell: &Arc<str>) -> Result<()> {
        let Some(on_notice) = self.on_notice.get().cloned() else {
            return Ok(());
        };
        let path = self.path(cell);
        let seen = look(client, &path).await;
        let seen = seen.map_err(|why| self.refused(&path, &why))?;
        // The cell may have changed since the subscriber read it. Values that it knows do no harm.
        if let (Some((_, data)), _) = &seen {
            let (cell, (_, value)) = (cell.to_string(), parse(data.clone()));
            on_notice(Notice::Written { cell, value });
        }
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
            Ok((data, stat, watcher)) => return Ok((Some((stat, data)), watcher)),
            Err(Error::NoNode) => {}
            Err(why) => return Err(why),
        }
        let (stat, watcher) = client.check_and_watch_stat(path).await?;
        if stat.is_none() {
            return Ok((None, watcher));
        }
    }
}

/// Sends the notices of a cell until its session ends.
async fn follow(client: Client, path: String, cell: Arc<str>, seen: Seen, on_notice: OnNotice) {
    let (mut before, mut watcher) = seen;
    while watcher.changed().await.event_type != EventType::Session {
        let Ok((now, next)) = look(&client, &path).await else {
            break;
        };
        if let Some((stat, data)) = &now {
            let expected = match before {
                Some((before, _)) if before.czxid == stat.czxid => before.version + 1,
                _ => 0,
            };
            let (is_loud, value) = parse(data.clone());
            // Two changes in a row may cause one event, and the first may have been loud.
            let has_skipped = stat.version > expected;
            if has_skipped || is_loud && stat.version == expected {
                let cell = cell.to_string();
                on_notice(Notice::Written { cell, value });
            }
        }
        (before, watcher) = (now, next);
    }
    let cell = Some(cell.to_string());
    on_notice(Notice::Unheard { cell });
}
