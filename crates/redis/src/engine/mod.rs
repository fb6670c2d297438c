//! Cells in Redis or Valkey: one server, a master that Sentinels name, or a cluster.
//!
//! | URL | means |
//! | --- | --- |
//! | `redis://127.0.0.1:6379/0` | one server, database 0 |
//! | `redis://user:password@redis.example.com` | … with an ACL user; characters such as `@` as `%40` |
//! | `redis+sentinel://127.0.0.1:26379,127.0.0.1:26380/mymaster/0` | the master that these Sentinels name; user and password are the master's |
//! | `redis+cluster://127.0.0.1:7000,127.0.0.1:7001` | a cluster; the servers named are asked for the others |
//! | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS; also for the Sentinels |
//! | `…?wait=1` | a change counts only once so many replicas have it ([`Redis::wait`]) |
//! | `rediss://…?ca=FILE` | servers' certificates are signed by one of FILE (PEM), not by one the machine trusts |
//!
//! A cell is one string under its name, and expires when nobody changed it for [`Write::keep`]. A change is the server's own
//! compare-and-set (`SET … IFEQ`, Valkey since 8.1, Redis since 8.4), or where it has none, or watchers are to be told, one call
//! of a five-line script. All changes of a call go to a server as one pipeline. The script is loaded by whoever finds that the server
//! has forgotten it, unseen by the caller.
//!
//! Notices are sharded pub/sub on a channel with the cell's name (servers since 7; older ones tell nobody).
//!
//! An ACL user needs `~*` (or the cells' prefix), the same as `&` for channels, and `+eval +evalsha +get +getrange +set
//! +spublish +ssubscribe +sunsubscribe +time +info`, for a cluster `+cluster|slots +asking`, for [`Redis::wait`] `+wait`.
//!
//! Servers, connections and what becomes of a cell that moves are the crate `politely-redis`; here is what is said to them: `change.rs`
//! the change of a cell, `heartbeat.rs` time and run.

mod change;
mod heartbeat;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{Command, Servers, Trouble};
use redis::{Cmd, FromRedisValue, ParsingError, PushInfo, PushKind, Value, from_redis_value};

use politely_store::{Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Write, Written};

pub use crate::UrlError as RedisError;

/// Cells in Redis or Valkey.
///
/// Connections are made when they are needed and again when they broke, so servers may come and go. A call with a broken
/// connection fails, the next one makes another; each ends within seconds. All calls are to be made on one tokio runtime.
/// One call should have thousands of cells at most: it has half a second to be answered.
pub struct Redis {
    servers: Servers,
    /// As last seen.
    run: AtomicU64,
    /// In this run somebody did not understand what not every server does.
    plain: AtomicBool,
}

impl Redis {
    /// Cells behind `url` (see the module). Talks to nobody yet.
    ///
    /// # Errors
    ///
    /// [`RedisError`] if the URL means nothing, or the file of its `ca` cannot be read.
    pub fn connect(url: &str) -> Result<Self, RedisError> {
        Ok(Self {
            servers: Servers::connect(url)?,
            run: AtomicU64::default(),
            plain: AtomicBool::default(),
        })
    }

    /// A change counts only once so many replicas have acknowledged it (`WAIT`, at most 0.3 s); one that does not is an error, and
    /// may be there or not. Default: what the URL says, else 0. Costs a round trip from master to replica per call; while too few
    /// replicas are there, nothing can be changed.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.servers = self.servers.wait(replicas);
        self
    }
}

impl Engine for Redis {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        Box::pin(async move {
            let gets = cells.iter().map(|cell| simple("GET", cell));
            let answers = self.servers.ask(gets.collect()).await;
            answers.into_iter().map(held).collect()
        })
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        Box::pin(async move { self.change(&writes).await })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        Box::pin(async move { self.look(&epoch).await })
    }

    fn listen(&self, hear: OnNotice) {
        self.servers.listen(move |push| {
            if let Ok(Some(notice)) = notice(push) {
                hear(notice);
            }
        });
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let left = less.iter().map(|cell| simple("SUNSUBSCRIBE", cell));
            let joined = more.iter().map(|cell| simple("SSUBSCRIBE", cell));
            let all = left.chain(joined).collect();
            let answers = self.servers.subscribe(all).await;
            answers.into_iter().try_for_each(|answer| match answer {
                // Too old to tell of changes, or not allowed to: there are no notices.
                Err(why) if !matches!(why.code(), Some("ERR" | "NOPERM")) => Err(why.into()),
                _ => Ok(()),
            })
        })
    }
}

/// A command without arguments beside the cell.
fn simple<'a>(name: &str, cell: &'a str) -> Command<'a> {
    let mut words = Cmd::with_capacity(2, name.len() + cell.len());
    words.arg(name).arg(cell);
    Command { key: cell, words }
}

/// What a cell holds. What is no string is somebody else's, as is a string too short for a version.
fn held(answer: Result<Value, Trouble>) -> Result<Option<Vec<u8>>, EngineError> {
    match answer {
        Ok(value) => Option::from_redis_value(value).map_err(|odd| EngineError(odd.to_string())),
        Err(why) if why.code() == Some("WRONGTYPE") => Ok(Some(Vec::new())),
        Err(why) => Err(why.into()),
    }
}

/// What a server says unasked.
fn notice(push: PushInfo) -> Result<Option<Notice>, ParsingError> {
    let data = Value::Array(push.data);
    Ok(match push.kind {
        PushKind::SMessage => {
            let (cell, value) = from_redis_value(data)?;
            Some(Notice::Written { cell, value })
        }
        // If nobody asked for it: the channel has moved.
        PushKind::SUnsubscribe => {
            let (cell, _left): (_, u64) = from_redis_value(data)?;
            Some(Notice::Unheard { cell: Some(cell) })
        }
        PushKind::Disconnection => Some(Notice::Unheard { cell: None }),
        _ => None,
    })
}

const RIGHTS: &str = "; docs/fleet.md lists what its user needs";

impl From<Trouble> for EngineError {
    fn from(why: Trouble) -> Self {
        let told = why.to_string();
        let advice = match why.code() {
            Some("NOPERM") => RIGHTS,
            Some("ERR") if told.contains("executing the script can't run") => RIGHTS,
            _ => "",
        };
        Self(told + advice)
    }
}
