//! Tests of Redis and Valkey: the suite over every kind of connection, and faults of the servers.

#![expect(
    clippy::disallowed_methods,
    reason = "real servers come back in real time"
)]

mod cluster;
mod complaints;
mod failover;
mod faults;
mod risks;

use std::sync::Arc;
use std::time::Duration;

use politely::cells::redis::Redis;
use politely::cells::{Engine, EngineError, Notice, Write};

use super::suite::{self, Told};
use super::{Running, read, set, value, write};
use politely_testkit::redis::{Cluster, RedisServer, Sentineled};

/// Servers that hold cells, and the URL at which clients reach them.
struct Reached<T> {
    servers: T,
    url: String,
}

impl<T: Owners> Running for Reached<T> {
    fn client(&self) -> Arc<dyn Engine> {
        client(&self.url)
    }

    fn empty(&self) {
        for owner in self.servers.owners() {
            owner.order(&["flushall"]);
        }
    }
}

trait Owners {
    fn owners(&self) -> &[RedisServer];
}

impl Owners for RedisServer {
    fn owners(&self) -> &[RedisServer] {
        std::slice::from_ref(self)
    }
}

impl Owners for Sentineled {
    fn owners(&self) -> &[RedisServer] {
        std::slice::from_ref(&self.master)
    }
}

impl Owners for Cluster {
    fn owners(&self) -> &[RedisServer] {
        &self.nodes
    }
}

fn reached<T>(servers: T, url: impl Fn(&T) -> String) -> Reached<T> {
    Reached {
        url: url(&servers),
        servers,
    }
}

fn alone() -> Reached<RedisServer> {
    reached(RedisServer::start(""), RedisServer::url)
}

/// Starts a server whose user has only the rights that the module's documentation lists.
fn with_a_user() -> Reached<RedisServer> {
    let rights =
        "+eval +evalsha +get +getrange +set +spublish +ssubscribe +sunsubscribe +time +info";
    let config = format!("user default off\nuser ann on >p@ss ~* &* -@all {rights}\n");
    reached(RedisServer::start(&config), |server| {
        server.url().replace("://", "://ann:p%40ss@")
    })
}

fn with_tls() -> Reached<RedisServer> {
    reached(RedisServer::start_with_tls(""), RedisServer::url)
}

suite::engines! {
    one_server: each alone(),
    valkey: each reached(RedisServer::start_valkey(), RedisServer::url),
    acl_user: each with_a_user(),
    tls: each with_tls(),
    sentinel: once reached(Sentineled::start(""), Sentineled::url),
    waiting_for_a_replica: once reached(Sentineled::start(""), |servers| servers.url() + "?wait=1"),
    three_masters: once reached(Cluster::start(), Cluster::url),
}

/// Returns a new client.
fn client(url: &str) -> Arc<dyn Engine> {
    Arc::new(Redis::connect(url).expect("a URL"))
}

/// Longest wait for an event that takes an unknown time, such as an election or a restart.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the first success of the call. Calls fail while servers restart.
async fn settled<T>(mut call: impl AsyncFnMut() -> Result<T, EngineError>) -> T {
    let mut failed = EngineError(String::new());
    let calls = async {
        loop {
            match call().await {
                Ok(said) => return said,
                Err(why) => failed = why,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let settled = tokio::time::timeout(PATIENCE, calls).await;
    settled.unwrap_or_else(|_| panic!("{failed}"))
}

/// Asserts that the call ends by itself, and returns its result.
async fn ends<T>(call: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE / 3, call).await;
    ended.expect("a call ends by itself")
}

async fn run(engine: &dyn Engine) -> Result<u64, EngineError> {
    Ok(engine.heartbeat("epoch".into()).await?.run)
}

/// Watches a cell. The servers must be available.
async fn watch(engine: &dyn Engine, cell: &str) {
    let watched = engine.watch(vec![cell.into()], vec![]).await;
    assert_eq!(watched, Ok(()));
}

/// Changes the cell until the watcher receives a notice. The watcher watches again when its watch
/// has ended, because notices sent meanwhile are lost.
async fn heard_again(engine: &dyn Engine, told: &mut Told, cell: &str) {
    let hearing = async {
        for version in 1_u64.. {
            let now = settled(async || read(engine, cell).await).await;
            let write = Write {
                cell: cell.into(),
                expected: now.as_deref().and_then(politely::cells::Version::of),
                before: None,
                value: [&version.to_le_bytes()[..], b"8 bytes more"].concat(),
                keep: PATIENCE,
                notify: true,
            };
            // The write fails while servers restart.
            let _ = set(engine, write).await;
            let soon = tokio::time::timeout(Duration::from_millis(50), told.notices.recv()).await;
            match soon {
                Ok(Some(Notice::Written { cell: heard, .. })) => {
                    assert_eq!(heard, cell);
                    return;
                }
                Ok(Some(Notice::Unheard { .. })) => told.unheard = true,
                _ => {}
            }
            if told.unheard {
                told.unheard = engine.watch(vec![cell.into()], vec![]).await.is_err();
            }
        }
    };
    let heard = tokio::time::timeout(PATIENCE, hearing).await;
    heard.expect("the watcher hears again");
}
