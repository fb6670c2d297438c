//! The engine of `politely-store` in `ZooKeeper`, 3.5 or later.
//!
//! | URL | meaning |
//! | --- | --- |
//! | `zookeeper://127.0.0.1:2181` | one server |
//! | `zookeeper://h1,h2,h3/politely` | an ensemble; all znodes are below `/politely` |
//! | `zookeeper://user:password@h1,h2,h3` | digest authentication |
//! | `…?max_bytes=4000000` | the servers' `jute.maxbuffer`, if it is not the default |
//!
//! | znode below the chroot | content |
//! | --- | --- |
//! | `cells/NAME` | a cell: one byte, then its value |
//! | `members/SESSION` | ephemeral: a process that sends heartbeats, with its process id |
//! | `run` | its creation identifies the data of this ensemble |
//!
//! The first byte of a cell is `!` if its writer asked for a notice ([`Write::notify`]), else `.`.
//! In the name of a cell, `%`, `/`, control characters and non-ASCII bytes are percent-encoded.
//!
//! A change is one `setData` with the znode's version, or one `create`. The adapter remembers the
//! znode's version of a cell for [`REMEMBER`]; without it, a change costs a read more. A read
//! follows a `sync`, because a follower may lag behind the leader, or the answer to a write.
//!
//! The engine's time is the modification time of the member's znode, which every heartbeat writes.
//! The leader sets it. The ensemble loses no acknowledged write, so its run changes only if the
//! znode `run` is created again.
//!
//! Cells do not expire, because `ZooKeeper`'s TTL nodes need a switch that is off by default.
//! With a login, each znode belongs to its user alone. Otherwise, every client may change it.
//!
//! | file | its part |
//! | --- | --- |
//! | `url.rs` | the meaning of a URL |
//! | `session.rs` | the session, made again after it expired |
//! | `cells.rs` | reads and changes of cells |
//! | `notices.rs` | the watches of subscribed cells |
//!
//! # What is not here
//!
//! This crate decides nothing about limits. To limit requests over `ZooKeeper`, use
//! `politely::Limiter` with its feature `zookeeper`. Permits are granted in `politely-store`
//! (`Replica::serve`); this crate carries out its reads and writes.

mod cells;
mod notices;
mod session;
mod url;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_store::{Engine, EngineError, Heartbeat, OnNotice, Pending, Write, Written};

use self::cells::{Known, Value};
use self::notices::Watching;
use self::session::Opening;
use self::url::Place;

pub use self::cells::REMEMBER;
pub use self::url::UrlError;

/// Cells in an ensemble of `ZooKeeper` servers.
///
/// The session starts at the first call, and another one after it expired, so servers may come and
/// go. A call without a connection fails at once. Dropping the engine ends its session. All calls
/// must be made on one Tokio runtime.
pub struct ZooKeeper {
    place: Arc<Place>,
    opening: Mutex<Option<Opening>>,
    known: Mutex<Known>,
    on_notice: OnceLock<OnNotice>,
    watching: Mutex<HashMap<Arc<str>, Watching>>,
    /// A cell whose znode has this version is created again before the version overflows.
    renew_at: i32,
}

impl ZooKeeper {
    /// Creates an engine for the servers of `url` (see the module). It connects at the first call.
    ///
    /// # Errors
    ///
    /// [`UrlError`] if the URL is invalid.
    pub fn connect(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            place: Arc::new(Place::parse(url)?),
            opening: Mutex::default(),
            known: Mutex::default(),
            on_notice: OnceLock::new(),
            watching: Mutex::default(),
            renew_at: i32::MAX / 2,
        })
    }

    /// Sets the znode version at which a cell is created again. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn renew_at(mut self, version: i32) -> Self {
        self.renew_at = version;
        self
    }
}

pub(crate) type Result<T, E = EngineError> = std::result::Result<T, E>;

impl Engine for ZooKeeper {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Value>>> {
        Box::pin(async move {
            match self.client().await {
                Ok(client) => self.read_all(&client, &cells).await,
                Err(error) => vec![Err(error); cells.len()],
            }
        })
    }

    fn compare_and_set(&self, writes: Vec<Write>) -> Pending<'_, Vec<Result<Written>>> {
        Box::pin(async move {
            match self.client().await {
                Ok(client) => join_all(writes.iter().map(|it| self.change(&client, it))).await,
                Err(error) => vec![Err(error); writes.len()],
            }
        })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat>> {
        Box::pin(async move {
            let client = self.client().await?;
            let time_ms = self.touch_member(&client).await?;
            // The session orders these reads after the write, so they are at least as recent.
            let (run, epoch) = join(self.run(&client), self.get(&client, &epoch)).await;
            Ok(Heartbeat {
                time: Timestamp::from_micros(time_ms.saturating_mul(1000)),
                run: run?,
                epoch: epoch?,
            })
        })
    }

    fn listen(&self, on_notice: OnNotice) {
        let _ = self.on_notice.set(on_notice);
    }

    fn watch(&self, more: Vec<Arc<str>>, less: Vec<Arc<str>>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            for cell in less {
                self.watching.lock().remove(&cell);
            }
            if more.is_empty() {
                return Ok(());
            }
            let client = self.client().await?;
            let begun = more.iter().map(|cell| self.begin_watching(&client, cell));
            join_all(begun).await.into_iter().collect()
        })
    }
}
