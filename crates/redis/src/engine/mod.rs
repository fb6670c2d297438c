//! The engine of `politely-store` in Redis or Valkey: one server, a master behind Sentinels, or a
//! cluster.
//!
//! | URL | meaning |
//! | --- | --- |
//! | `redis://127.0.0.1:6379/0` | one server, database 0 |
//! | `redis://user:password@redis.example.com` | one server, with an ACL user |
//! | `redis+sentinel://127.0.0.1:26379,127.0.0.1:26380/mymaster/0` | the master of Sentinels |
//! | `redis+cluster://127.0.0.1:7000,127.0.0.1:7001` | a cluster that contains these servers |
//! | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS |
//! | `…?wait=1` | a change needs so many replicas' acknowledgement ([`Redis::wait`]) |
//! | `rediss://…?ca=FILE` | FILE (PEM) signs the servers' certificates |
//!
//! A character such as `@` in a password is written as `%40`. User and password are those of the
//! master, not of its Sentinels. With TLS, Sentinels are reached over TLS too. Without `ca`, the
//! machine's certificates are trusted.
//!
//! A cell is one string. It expires if no node changes it for [`Write::keep`]. A change is the
//! server's own compare-and-set (`SET … IFEQ`, Valkey since 8.1, Redis since 8.4). If the server
//! has none, or if subscribers are to be notified, a change is one call of a five-line script. All
//! changes of a call go to a server as one pipeline. If the server has forgotten the script, the
//! adapter sends it again.
//!
//! Notices are sharded pub/sub on a channel with the cell's name. Servers before version 7 have
//! none.
//!
//! An ACL user needs `~*` (or the cells' prefix) and the same as `&` for channels. Its commands are
//! `+eval +evalsha +get +getrange +set +spublish +ssubscribe +sunsubscribe +time +info`. It also
//! needs `+cluster|slots +asking` for a cluster, and `+wait` for [`Redis::wait`]. With
//! `+config|get` the warnings about persistence are exact.
//!
//! [`Servers`] handles connections, owners and moved cells. This module has the commands:
//! `change.rs` changes a cell, `heartbeat.rs` reads the time and the run, and `risks.rs` reads the
//! settings that lose writes.

mod change;
mod heartbeat;
mod risks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{Command, Servers, Trouble};
use redis::{FromRedisValue, ParsingError, PushInfo, PushKind, Value, from_redis_value};

use politely_store::{
    Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Risk, Write, Written,
};

pub use crate::UrlError as RedisError;

/// Cells in Redis or Valkey.
///
/// Connections are made when they are needed, and again after they broke, so servers may come and
/// go. A call on a broken connection fails, and the next call makes another connection. A call ends
/// within seconds. All calls must be made on one Tokio runtime. One call should have at most some
/// thousands of cells, since it must be answered within half a second.
pub struct Redis {
    servers: Servers,
    /// The id of the last seen run.
    run: AtomicU64,
    /// Whether a server of this run does not know the native compare-and-set.
    plain: AtomicBool,
    /// Whether a server of this run refuses `CONFIG GET`. Each refusal would be a line of its log.
    hides_config: AtomicBool,
}

impl Redis {
    /// Creates an engine for the servers of `url` (see the module). It connects at the first call.
    ///
    /// # Errors
    ///
    /// [`RedisError`] if the URL is invalid, or if the file of its `ca` cannot be read.
    pub fn connect(url: &str) -> Result<Self, RedisError> {
        Ok(Self {
            servers: Servers::connect(url)?,
            run: AtomicU64::default(),
            plain: AtomicBool::default(),
            hides_config: AtomicBool::default(),
        })
    }

    /// Lets a change succeed only after this many replicas have acknowledged it (`WAIT`, at most
    /// 0.3 s).
    ///
    /// A change without enough acknowledgements is an error, and may have been made. The default is
    /// the number in the URL, or zero. It costs a round trip from master to replica per call. While
    /// too few replicas are connected, nothing can be changed.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.servers = self.servers.wait(replicas);
        self
    }
}

impl Engine for Redis {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        Box::pin(async move {
            let gets = cells.iter().map(|cell| Command::new("GET", cell));
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

    fn risks(&self) -> Pending<'_, Result<Vec<Risk>, EngineError>> {
        Box::pin(async move { self.find_risks().await })
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
            let left = less.iter().map(|cell| Command::new("SUNSUBSCRIBE", cell));
            let joined = more.iter().map(|cell| Command::new("SSUBSCRIBE", cell));
            let all = left.chain(joined).collect();
            let answers = self.servers.subscribe(all).await;
            answers.into_iter().try_for_each(|answer| match answer {
                // The server is too old for notices, or this user may not subscribe. The node polls
                // instead.
                Err(why) if !matches!(why.code(), Some("ERR" | "NOPERM")) => Err(why.into()),
                _ => Ok(()),
            })
        })
    }
}

/// Returns the value of a cell. A value that is not a string is read as one too short for a
/// version.
fn held(answer: Result<Value, Trouble>) -> Result<Option<Vec<u8>>, EngineError> {
    match answer {
        Ok(value) => Option::from_redis_value(value).map_err(|odd| EngineError(odd.to_string())),
        Err(why) if why.code() == Some("WRONGTYPE") => Ok(Some(Vec::new())),
        Err(why) => Err(why.into()),
    }
}

/// Returns the notice in a message that the server pushed.
fn notice(push: PushInfo) -> Result<Option<Notice>, ParsingError> {
    let data = Value::Array(push.data);
    Ok(match push.kind {
        PushKind::SMessage => {
            let (cell, value) = from_redis_value(data)?;
            Some(Notice::Written { cell, value })
        }
        // The server ends a subscription by itself if the slot of the channel has moved.
        PushKind::SUnsubscribe => {
            let (cell, _left): (_, u64) = from_redis_value(data)?;
            Some(Notice::Unheard { cell: Some(cell) })
        }
        PushKind::Disconnection => Some(Notice::Unheard { cell: None }),
        _ => None,
    })
}

const RIGHTS: &str = "; docs/how-to/run-a-fleet.md lists what its user needs";

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
