//! Who is told of changes: sharded channels named like the cells, on connections of their own.
//!
//! Whatever breaks such a connection, or moves a channel to another server, all watched cells are subscribed to again.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::super::OnNotice;
use super::servers::{Purpose, Servers};
use crate::sync::sleep;

/// Between attempts to be heard again.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Ears {
    hear: OnceLock<OnNotice>,
    watched: Mutex<HashSet<Arc<str>>>,
    /// Somebody keeps the subscriptions.
    kept: OnceLock<()>,
    lost: Arc<Notify>,
}

impl Ears {
    pub(super) fn listen(&self, hear: OnNotice) {
        // Called once; who calls again is not heard.
        let _ = self.hear.set(hear);
    }

    /// For connections that tell us.
    pub(super) fn config(self: &Arc<Self>) -> AsyncConnectionConfig {
        let ears = Arc::clone(self);
        AsyncConnectionConfig::new().set_push_sender(move |told: PushInfo| {
            ears.told(told);
            Ok::<(), ()>(())
        })
    }

    /// Subscriptions may be gone.
    pub(super) fn lost(&self) {
        self.lost.notify_one();
    }

    fn told(&self, told: PushInfo) {
        let mut data = told.data.into_iter();
        match (told.kind, data.next(), data.next()) {
            (PushKind::SMessage, Some(Value::BulkString(cell)), Some(Value::BulkString(value))) => {
                let cell = std::str::from_utf8(&cell).unwrap_or_default();
                let watched = self.watched.lock().contains(cell);
                if let (true, Some(hear)) = (watched, self.hear.get()) {
                    hear(cell, value);
                }
            }
            // If we did not ask for it: the channel has moved.
            (PushKind::SUnsubscribe, Some(Value::BulkString(cell)), _) => {
                let cell = std::str::from_utf8(&cell).unwrap_or_default();
                if self.watched.lock().contains(cell) {
                    self.lost();
                }
            }
            (PushKind::Disconnection, ..) => self.lost(),
            _ => {}
        }
    }
}

pub(super) async fn watch(servers: &Arc<Servers>, more: Vec<Arc<str>>, less: Vec<Arc<str>>) {
    let ears = &servers.ears;
    {
        let mut watched = ears.watched.lock();
        for cell in &less {
            watched.remove(cell);
        }
        watched.extend(more.iter().cloned());
    }
    if ears.kept.set(()).is_ok() {
        let lost = Arc::clone(&ears.lost);
        tokio::spawn(keep(Arc::downgrade(servers), lost));
    }
    let left = say(servers, "SUNSUBSCRIBE", &less).await;
    let joined = say(servers, "SSUBSCRIBE", &more).await;
    if !(left && joined) {
        ears.lost();
    }
}

/// Subscribes again after each loss, until it works or nobody needs it any more.
async fn keep(servers: Weak<Servers>, lost: Arc<Notify>) {
    loop {
        lost.notified().await;
        loop {
            let Some(servers) = servers.upgrade() else {
                return;
            };
            let watched: Vec<_> = servers.ears.watched.lock().iter().cloned().collect();
            if say(&servers, "SSUBSCRIBE", &watched).await {
                break;
            }
            drop(servers);
            sleep(PAUSE).await;
        }
    }
}

/// Whether all of it was heard.
async fn say(servers: &Servers, what: &str, cells: &[Arc<str>]) -> bool {
    let cells: Vec<&str> = cells.iter().map(|cell| &**cell).collect();
    let command = |i: usize| {
        let mut command = Cmd::with_capacity(2, what.len() + cells[i].len());
        command.arg(what).arg(cells[i]);
        command
    };
    let answers = servers.each(Purpose::Notices, &cells, &command, 0).await;
    answers.iter().all(Result::is_ok)
}
