//! Engines whose settings lose what they acknowledged: readiness, log, metrics and the table of
//! keys say so. The engines are real, and their settings change while coordinators run.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fleet::http::Http;
use crate::run::{fast, run};
use politely_testkit::process::Server;
use politely_testkit::redis::{RedisServer, wait_for};

/// A coordinator on an engine.
struct Served {
    server: Server,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(store: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let args = [
            "serve",
            "--bind=127.0.0.1:0",
            "--frontier",
            "--store",
            store,
        ];
        let mut server = Server::start("politely", folder.path(), program, args);
        let line = server.says("politely: http://");
        let address = line.trim_start_matches("politely: http://").parse();
        Self {
            server,
            address: address.expect("an address"),
            _folder: folder,
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let deadline = Instant::now() + Duration::from_mins(1);
        let answer = Http::new(self.address).call("GET", path, "", deadline);
        let answer = answer.expect("an answer");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    }

    /// Waits until `/readyz` has this status and contains `word`.
    fn wait_until_ready_is(&self, status: u16, word: &str) {
        wait_for(&format!("{status} with {word:?}"), || {
            let (seen, body) = self.get("/readyz");
            seen == status && body.contains(word)
        });
    }

    /// Asserts that `/metrics` counts so many settings.
    fn counts(&self, critical: u32, warning: u32) {
        let (_, text) = self.get("/metrics");
        for (severity, count) in [("critical", critical), ("warning", warning)] {
            let line = format!("politely_engine_risks{{severity=\"{severity}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

/// Changes a setting, and lets the coordinators lose the engine for a moment. They read the
/// settings when it is back, and else within a minute.
fn set(redis: &RedisServer, name: &str, value: &str, served: &[&Served]) {
    redis.order(&["config", "set", name, value]);
    redis.freeze();
    for served in served {
        served.wait_until_ready_is(503, "the engine is unavailable");
    }
    redis.thaw();
}

#[test]
fn coordinators_on_an_engine_that_evicts_are_not_ready_until_it_no_longer_does() {
    let redis = RedisServer::start("maxmemory 100mb\nmaxmemory-policy allkeys-lru\n");
    let mut one = Served::start(&redis.url());
    let other = Served::start(&redis.url());
    let said = one.server.says("error: the engine");
    assert!(said.contains("maxmemory-policy allkeys-lru"), "{said}");
    for served in [&one, &other] {
        served.wait_until_ready_is(503, "CONFIG SET maxmemory-policy noeviction");
        served.counts(1, 1);
        let (_, keys) = served.get("/api/v1/keys");
        assert!(keys.contains("\"engine_error\":\"the engine "), "{keys}");
        assert!(
            keys.contains("\"engine_warnings\":[\"the engine "),
            "{keys}"
        );
    }

    set(&redis, "maxmemory-policy", "noeviction", &[&one, &other]);
    for served in [&one, &other] {
        served.wait_until_ready_is(200, "ok\nwarning: the engine ");
        served.counts(0, 1);
    }
    one.server.says("no longer: the engine");

    set(&redis, "maxmemory-policy", "volatile-ttl", &[&one, &other]);
    for served in [&one, &other] {
        served.wait_until_ready_is(503, "maxmemory-policy volatile-ttl");
        served.counts(1, 1);
    }
}

#[test]
fn a_coordinator_warns_once_of_an_engine_without_persistence_and_is_ready() {
    let redis = RedisServer::start("");
    let mut served = Served::start(&redis.url());
    served.wait_until_ready_is(200, "a restart loses all that it acknowledged");
    served.counts(0, 1);
    served.server.says("warning: the engine");
    set(&redis, "appendonly", "yes", &[&served]);
    served.server.says("no longer: the engine");
    served.wait_until_ready_is(200, "ok\n");
    assert_eq!(served.get("/readyz").1, "ok\n");
    served.counts(0, 0);
    let talk = served.server.talk();
    assert_eq!(talk.matches("warning: the engine").count(), 1, "{talk}");
}

#[test]
fn a_coordinator_on_a_replica_is_not_ready() {
    let master = RedisServer::start("");
    let (ip, port) = (master.address.ip(), master.address.port());
    let replica = RedisServer::start(&format!("replicaof {ip} {port}\n"));
    replica.wait_for_info("master_link_status:up");
    let served = Served::start(&replica.url());
    served.wait_until_ready_is(503, "it is a replica: name its master");
}

#[test]
fn a_run_does_not_start_on_an_engine_that_evicts() {
    let redis = RedisServer::start("maxmemory 100mb\nmaxmemory-policy volatile-lru\n");
    let fetch = || {
        run(fast().args([
            "--give-up-after",
            "1s",
            "--store",
            &redis.url(),
            "http://127.0.0.1:1/",
        ]))
    };
    let said = fetch();
    assert_eq!(said.code, 2, "{}", said.err);
    let is_clear = said.err.contains("maxmemory-policy noeviction");
    assert!(is_clear && said.err.lines().count() == 1, "{}", said.err);
    redis.order(&["config", "set", "maxmemory-policy", "noeviction"]);
    let said = fetch();
    assert_ne!(said.code, 2, "{}", said.err);
    assert!(!said.err.contains("appendonly"), "{}", said.err);
}
