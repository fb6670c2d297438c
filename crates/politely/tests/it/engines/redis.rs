//! Redis: the suite over all the ways to reach it.

use std::sync::Arc;

use politely::cells::Engine;
use politely::cells::redis::Redis;

use super::{Running, suite};
use crate::servers::redis::{Cluster, RedisServer, Sentineled};

/// Servers that own cells, and how they are reached.
struct Reached<T> {
    servers: T,
    url: String,
}

impl<T: Owners> Running for Reached<T> {
    fn client(&self) -> Arc<dyn Engine> {
        Arc::new(Redis::connect(&self.url).expect("a URL"))
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

/// A user with the rights that the module's documentation lists, and no more.
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
    acl_user: each with_a_user(),
    tls: each with_tls(),
    sentinel: once reached(Sentineled::start(""), Sentineled::url),
    waiting_for_a_replica: once reached(Sentineled::start(""), |servers| servers.url() + "?wait=1"),
    three_masters: once reached(Cluster::start(), Cluster::url),
}
