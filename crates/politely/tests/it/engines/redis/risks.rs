//! Tests that settings of real servers are found if they lose acknowledged writes.

use std::time::Duration;

use politely::cells::{Engine, EngineError, Risk, Severity};
use politely::{Config, Limiter};

use super::{PATIENCE, client, settled};
use politely_testkit::redis::{Cluster, RedisServer, Sentineled};

async fn risks(engine: &dyn Engine) -> Vec<Risk> {
    let risks = engine.risks().await.expect("an answer");
    for Risk { text, .. } in &risks {
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    risks
}

fn texts(risks: &[Risk], severity: Severity) -> Vec<&str> {
    let risks = risks.iter().filter(|risk| risk.severity == severity);
    risks.map(|risk| risk.text.as_str()).collect()
}

fn set(server: &RedisServer, name: &str, value: &str) {
    server.order(&["config", "set", name, value]);
}

#[tokio::test]
async fn each_policy_that_evicts_is_critical_once_memory_is_bounded() {
    let server = RedisServer::start("");
    let engine = client(&server.url());
    for policy in [
        "noeviction",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        for bound in ["0", "100mb"] {
            set(&server, "maxmemory-policy", policy);
            set(&server, "maxmemory", bound);
            let risks = risks(&*engine).await;
            let critical = texts(&risks, Severity::Critical);
            let evicts = policy != "noeviction" && bound != "0";
            assert_eq!(critical.len(), usize::from(evicts), "{policy} {bound}");
            for text in critical {
                let says = |word: &str| text.contains(word);
                assert!(says(&format!("maxmemory-policy {policy},")), "{text}");
                assert!(says("CONFIG SET maxmemory-policy noeviction"), "{text}");
                assert!(says(&server.address.to_string()), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn persistence_that_loses_writes_at_a_restart_is_a_warning() {
    let server = RedisServer::start("");
    let engine = client(&server.url());
    for (log, save, sync, word) in [
        ("no", "", "everysec", Some("save \"\"")),
        ("no", "3600 1 300 100", "always", Some("last snapshot")),
        ("yes", "", "everysec", None),
        ("yes", "", "always", None),
        ("yes", "3600 1", "no", Some("appendfsync no")),
    ] {
        set(&server, "appendonly", log);
        set(&server, "save", save);
        set(&server, "appendfsync", sync);
        let risks = risks(&*engine).await;
        assert_eq!(texts(&risks, Severity::Critical), [""; 0]);
        let warnings = texts(&risks, Severity::Warning);
        let is_right = match (&warnings[..], word) {
            ([], None) => true,
            ([text], Some(word)) => text.contains(word),
            _ => false,
        };
        assert!(is_right, "{log} {save} {sync}: {warnings:?}");
    }
}

#[tokio::test]
async fn a_server_that_forbids_config_is_judged_by_its_info() {
    let evicts = "maxmemory 100mb\nmaxmemory-policy volatile-ttl\n";
    let rights = "user default on nopass ~* &* -@all +info +time +get";
    for hidden in ["rename-command config \"\"", rights] {
        let server = RedisServer::start(&format!("{evicts}{hidden}\n"));
        let engine = client(&server.url());
        // The second read asks less.
        for _ in 0..2 {
            let risks = risks(&*engine).await;
            let critical = texts(&risks, Severity::Critical);
            assert!(critical[0].contains("volatile-ttl"), "{critical:?}");
            let warnings = texts(&risks, Severity::Warning);
            assert!(warnings[0].contains("appendonly no"), "{warnings:?}");
            assert_eq!(risks.len(), 2);
        }
    }
}

#[tokio::test]
async fn a_server_that_tells_nothing_is_a_warning_and_cannot_be_used() {
    let server = RedisServer::start("user default on nopass ~* &* -@all +time +get\n");
    let engine = client(&server.url());
    let risks = risks(&*engine).await;
    assert_eq!(texts(&risks, Severity::Critical), [""; 0]);
    let warnings = texts(&risks, Severity::Warning);
    assert!(
        warnings.len() == 2 && warnings.iter().all(|text| text.contains("does not tell")),
        "{warnings:?}"
    );
    let EngineError(why) = engine.heartbeat("epoch".into()).await.expect_err("no INFO");
    assert!(why.contains("lists what its user needs"), "{why}");
}

#[tokio::test]
async fn each_master_of_a_cluster_is_judged() {
    let cluster = Cluster::start();
    let engine = client(&cluster.url());
    for node in &cluster.nodes {
        set(node, "maxmemory", "100mb");
        assert_eq!(texts(&risks(&*engine).await, Severity::Critical), [""; 0]);
        set(node, "maxmemory-policy", "allkeys-lru");
        let all = risks(&*engine).await;
        let critical = texts(&all, Severity::Critical);
        let names = |text: &&str| text.starts_with(&node.address.to_string());
        assert!(
            critical.len() == 1 && critical.iter().all(names),
            "{critical:?}"
        );
        set(node, "maxmemory-policy", "noeviction");
    }
}

#[tokio::test]
async fn a_failover_to_a_server_with_another_policy_is_noticed_at_once() {
    let mut servers = Sentineled::start("maxmemory 100mb\n");
    set(&servers.replica, "maxmemory-policy", "allkeys-lru");
    let limiter = Limiter::builder()
        .config(Config::fixed(10.0, 1.0))
        .store(client(&servers.url()))
        .build()
        .expect("a limiter");
    limiter.ping().await.expect("it answers");
    assert_eq!(texts(&limiter.risks(), Severity::Critical), [""; 0]);
    servers.master.kill();
    servers.wait_for_promotion();
    // A minute is longer than this test waits.
    assert!(PATIENCE < Duration::from_mins(1));
    settled(
        async || match texts(&limiter.risks(), Severity::Critical)[..] {
            [text] if text.contains(&servers.replica.address.to_string()) => Ok(()),
            _ => Err(EngineError(format!("{:?}", limiter.risks()))),
        },
    )
    .await;
}
