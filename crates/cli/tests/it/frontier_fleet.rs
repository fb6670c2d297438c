//! A frontier in Redis with the built binary: two coordinators, workers and the engine are killed
//! while pages are added, taken and finished. [`Crawl::check`] says what must hold.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use politely::core::Rng;
use politely_testkit::process::Server;
use politely_testkit::redis::RedisServer;

use crate::fleet_store::proxy::Proxy;
use crate::frontier_crawl::{self, Crawl, kills};
use crate::run::{politely, run};

/// The kills in one run, unless a variable sets them.
const KILLS: u64 = 18;
/// One kill in this many is one of the engine.
const ENGINE_EVERY: u64 = 6;
const WORKERS: u64 = 4;
/// The lease of a unit, in milliseconds.
const LEASE_MS: u64 = 800;

/// An engine that acknowledges what is in its log. With `everysec` it may lose the last seconds.
fn engine() -> RedisServer {
    RedisServer::start("appendonly yes\nappendfsync always\n")
}

fn serve(folder: &Path, engine: &str, address: SocketAddr) -> Server {
    let (bind, store) = (format!("--bind={address}"), format!("--store={engine}"));
    frontier_crawl::serve(folder, &[bind, store, "--frontier".to_owned()])
}

#[test]
fn no_acknowledged_page_is_lost_or_done_twice_when_coordinators_and_the_engine_are_killed() {
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let mut engine = engine();
    let url = engine.url();
    let crawl = Crawl::new(2, LEASE_MS);
    let start = |at: usize| serve(folders[at].path(), &url, crawl.addresses[at]);
    let mut servers = [0, 1].map(|at| Some(start(at)));
    crawl.import(folders[0].path());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        let mut rng = Rng::new(5);
        for kill in 0..kills(KILLS) {
            let until = crawl.exchanges.load(Ordering::Relaxed) + 5 + rng.next_u64() % 40;
            crawl.wait(|| crawl.exchanges.load(Ordering::Relaxed) >= until);
            crawl.grow();
            if kill % ENGINE_EVERY == ENGINE_EVERY - 1 {
                engine.kill();
                engine.start_again();
            } else {
                let at = (kill % 2) as usize;
                // A server that is dropped is killed with SIGKILL.
                servers[at].take();
                servers[at] = Some(start(at));
            }
        }
        crawl.wait_for_the_end();
    });
    crawl.check();
    drop(servers);
}

#[test]
fn a_slow_wire_and_lost_answers_cost_no_page() {
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let engine = engine();
    let proxy = Proxy::start(engine.address);
    let crawl = Crawl::new(2, LEASE_MS);
    let _servers = [
        serve(folders[0].path(), &proxy.url(), crawl.addresses[0]),
        serve(folders[1].path(), &engine.url(), crawl.addresses[1]),
    ];
    crawl.import(folders[0].path());
    proxy.delay(20);
    proxy.lose(3);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        crawl.wait(|| proxy.lost() >= 5);
        crawl.grow();
        crawl.wait(|| proxy.lost() >= 10);
        proxy.lose(0);
        crawl.wait_for_the_end();
    });
    crawl.check();
}

#[test]
fn a_shared_frontier_needs_a_redis_and_no_folder() {
    for (args, word) in [
        (
            &["--frontier", "x", "--store", "redis://127.0.0.1:1"][..],
            "name no folder",
        ),
        (
            &["--frontier", "--store", "zookeeper://127.0.0.1:1"],
            "needs Redis or Valkey",
        ),
        (&["--frontier", "--memory"], "name a folder"),
    ] {
        let said = run(politely().args(["serve", "--bind=127.0.0.1:0"]).args(args));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        let is_clear = said.err.contains(word) && said.err.lines().count() == 1;
        assert!(is_clear, "{args:?}: {}", said.err);
    }
}
