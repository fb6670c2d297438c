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
//! | `change.rs` | the change of a cell |
//! | `pulse.rs` | time and run |
//! | `notices.rs` | who is told |
//! | `trouble.rs` | what servers complain of, and what to do |
//! | `servers/` | which servers there are, who owns a cell, one command per cell sent there |

mod change;
mod notices;
mod pulse;
mod servers;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::{Engine, EngineError, OnNotice, Pending, Pulse, Write, Written};

use self::change::Changes;
use self::servers::{Place, Purpose, Servers};

pub use self::servers::RedisError;

/// A call ends by then, well or not.
const CALL_TIME: Duration = Duration::from_secs(1);

/// Cells in Redis or Valkey.
///
/// Connections are made when they are needed and again when they broke, so servers may come and go. A call ends within a
/// second; a call with a broken connection fails, the next one makes another. All calls are to be made on one tokio runtime.
/// One call should have thousands of cells at most: it has half a second to be answered.
pub struct Redis {
    servers: Arc<Servers>,
    replicas: usize,
}

impl Redis {
    /// Cells behind `url` (see the module). Talks to nobody yet.
    ///
    /// # Errors
    ///
    /// [`RedisError`] if the URL means nothing, or the file of its `ca` cannot be read.
    pub fn connect(url: &str) -> Result<Self, RedisError> {
        let place = Place::parse(url)?;
        Ok(Self {
            replicas: place.replicas,
            servers: Arc::new(Servers::new(place)),
        })
    }

    /// A change counts only once so many replicas have acknowledged it (`WAIT`, at most 0.3 s); one that does not is an error, and
    /// may be there or not. Default: what the URL says, else 0. Costs a round trip from master to replica per call; while too few
    /// replicas are there, nothing can be changed.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }
}

impl Engine for Redis {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        Box::pin(async move {
            let names: Vec<&str> = cells.iter().map(|cell| &**cell).collect();
            let get = |i: usize| {
                let mut get = Cmd::with_capacity(2, 3 + names[i].len());
                get.arg("GET").arg(names[i]);
                get
            };
            let answers = self.servers.each(Purpose::Calls, &names, &get, 0).await;
            answers
                .into_iter()
                .map(|answer| bytes(answer?).map_err(|odd| trouble::odd(&odd)))
                .collect()
        })
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        Box::pin(async move {
            let names: Vec<&str> = writes.iter().map(|write| &*write.cell).collect();
            let purpose = if self.replicas > 0 {
                Purpose::Durable
            } else {
                Purpose::Calls
            };
            let answers = self
                .servers
                .each(purpose, &names, &Changes(&writes), self.replicas)
                .await;
            answers
                .into_iter()
                .map(|answer| change::written(answer?))
                .collect()
        })
    }

    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>> {
        Box::pin(async move {
            let pulse = tokio::time::timeout(CALL_TIME, self.servers.pulse(&epoch)).await;
            pulse.unwrap_or_else(|_| Err(trouble::late()))
        })
    }

    fn listen(&self, hear: OnNotice) {
        self.servers.ears.listen(hear);
    }

    fn watch(&self, more: Vec<Arc<str>>, less: Vec<Arc<str>>) -> Pending<'_, ()> {
        Box::pin(notices::watch(&self.servers, more, less))
    }
}

/// What a cell holds; whatever else was answered instead, back.
fn bytes(value: Value) -> Result<Option<Vec<u8>>, Value> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Nil => Ok(None),
        odd => Err(odd),
    }
}
