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
//! | file | its part |
//! | --- | --- |
//! | `url.rs` | what a URL says |
//! | `links.rs` | a connection to each server for each use; notices |
//! | `owners.rs` | which server owns a cell |
//! | `each.rs` | one command per cell, sent there, again if the cell moved |
//! | `change.rs` | the change of a cell |
//! | `pulse.rs` | time and run |
//! | `trouble.rs` | what servers complain of, and what to do |

mod change;
mod each;
mod links;
mod owners;
mod pulse;
mod trouble;
mod url;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redis::{FromRedisValue, Value};

use super::{Engine, EngineError, OnNotice, Pending, Pulse, Write, Written};

use self::each::{Ask, Simple};
use self::links::{Links, Purpose};
use self::owners::Owners;
use self::url::Place;

pub use self::url::RedisError;

/// Cells in Redis or Valkey.
///
/// Connections are made when they are needed and again when they broke, so servers may come and go. A call with a broken
/// connection fails, the next one makes another; each ends within seconds. All calls are to be made on one tokio runtime.
/// One call should have thousands of cells at most: it has half a second to be answered.
pub struct Redis {
    place: Place,
    hear: OnceLock<OnNotice>,
    links: Mutex<Links>,
    /// Unless they are to be asked for.
    owners: Mutex<Option<Arc<Owners>>>,
    /// One of them did not understand what not every server does.
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
            place: Place::parse(url)?,
            hear: OnceLock::new(),
            links: Mutex::default(),
            owners: Mutex::default(),
            plain: AtomicBool::default(),
        })
    }

    /// A change counts only once so many replicas have acknowledged it (`WAIT`, at most 0.3 s); one that does not is an error, and
    /// may be there or not. Default: what the URL says, else 0. Costs a round trip from master to replica per call; while too few
    /// replicas are there, nothing can be changed.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.place.replicas = replicas;
        self
    }
}

impl Engine for Redis {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        Box::pin(async move {
            let gets: Vec<_> = cells.iter().map(|cell| Simple("GET", cell)).collect();
            let answers = self.each(Purpose::Calls, &gets).await;
            answers.into_iter().map(|answer| held(answer?)).collect()
        })
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        Box::pin(async move {
            let purpose = match self.place.replicas {
                0 => Purpose::Calls,
                _ => Purpose::Durable,
            };
            let answers = self.each(purpose, &writes).await;
            let answers = writes.iter().zip(answers);
            let written = answers.map(|(write, answer)| match answer? {
                done if write.is_done(&done) => Ok(Written::Done),
                other => held(other).map(Written::Conflict),
            });
            written.collect()
        })
    }

    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>> {
        Box::pin(async move { self.look(&epoch).await })
    }

    fn listen(&self, hear: OnNotice) {
        // Called once; who calls again is not heard.
        let _ = self.hear.set(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let left = less.iter().map(|cell| Simple("SUNSUBSCRIBE", cell));
            let joined = more.iter().map(|cell| Simple("SSUBSCRIBE", cell));
            let all: Vec<_> = left.chain(joined).collect();
            let answers = self.each(Purpose::Notices, &all).await;
            answers.into_iter().try_for_each(|answer| answer.map(drop))
        })
    }
}

/// What a cell holds.
fn held(answer: Value) -> Result<Option<Vec<u8>>, EngineError> {
    Option::from_redis_value(answer).map_err(|odd| EngineError(odd.to_string()))
}
