//! Tests that errors of servers are reported in the servers' words, with advice.

use politely::cells::{Engine, Version, Written};

use super::super::suite::listening;
use super::{client, read, run, set, value, watch, write};
use politely_testkit::redis::{Cluster, RedisServer};

async fn refusal(engine: &dyn Engine) -> String {
    let written = set(engine, write("cell", None, value(1, b""))).await;
    let told = written.expect_err("it cannot be written").to_string();
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[tokio::test]
async fn a_server_says_why_it_does_not_write() {
    for (config, url, word, advice) in [
        (
            "min-replicas-to-write 1",
            "",
            "NOREPLICAS",
            "min-replicas-to-write",
        ),
        ("maxmemory 1", "", "OOM", "raise its maxmemory"),
        ("requirepass x", "", "NOAUTH", "belong into the URL"),
        (
            "requirepass x",
            ":y@",
            "authentication failed",
            "belong into the URL",
        ),
        (
            "user default on nopass ~* -@all +get +eval +evalsha",
            "",
            "executing the script",
            "lists what its user needs",
        ),
        ("databases 1", "/7", "out of range", ""),
    ] {
        let server = RedisServer::start(&format!("{config}\n"));
        let place = server.url();
        let url = match url.strip_suffix('@') {
            Some(login) => place.replace("://", &format!("://{login}@")),
            None => place + url,
        };
        let told = refusal(&*client(&url)).await;
        assert!(
            told.contains(word) && told.contains(advice),
            "{config}: {told}"
        );
        assert!(told.contains(&server.address.to_string()), "{told}");
    }
}

#[tokio::test]
async fn a_cell_that_is_something_else_is_left_alone() {
    let server = RedisServer::start("");
    server.cli(&["lpush", "cell", "x"]);
    let engine = client(&server.url());
    let strange = Some(Vec::new());
    assert_eq!(read(&*engine, "cell").await, Ok(strange.clone()));
    let written = set(&*engine, write("cell", None, value(1, b""))).await;
    assert_eq!(written, Ok(Written::Conflict(strange)));
    // The other writes of the call succeed.
    let writes = vec![
        write("cell", None, value(1, b"")),
        write("fine", None, value(1, b"")),
    ];
    let written = engine.compare_and_set(writes).await;
    assert!(matches!(written[0], Ok(Written::Conflict(_))));
    assert_eq!(written[1], Ok(Written::Done));
    assert_eq!(server.cli(&["type", "cell"]).trim(), "list");
}

#[tokio::test]
async fn a_replica_is_not_taken_for_its_master() {
    let master = RedisServer::start("");
    let (ip, port) = (master.address.ip(), master.address.port());
    let replica = RedisServer::start(&format!("replicaof {ip} {port}\n"));
    replica.wait_for_info("master_link_status:up");
    let engine = client(&replica.url());
    let told = refusal(&*engine).await;
    assert!(
        told.contains("READONLY") && told.contains("name its master"),
        "{told}"
    );
    let told = run(&*engine)
        .await
        .expect_err("its time is not the engine's")
        .0;
    assert!(told.contains("it is a replica"), "{told}");
    let before = run(&*client(&master.url())).await;
    replica.order(&["replicaof", "no", "one"]);
    assert_eq!(
        set(&*engine, write("cell", None, value(1, b""))).await,
        Ok(Written::Done)
    );
    assert_ne!(run(&*engine).await, before, "promoted, it is another run");
}

#[tokio::test]
async fn a_cluster_is_told_from_a_server() {
    let server = RedisServer::start("");
    let told = refusal(&*client(&server.url().replace("redis:", "redis+cluster:"))).await;
    assert!(told.contains("use redis://"), "{told}");
    let cluster = Cluster::start();
    let other = (cluster.owner("cell") + 1) % cluster.nodes.len();
    let told = refusal(&*client(&cluster.nodes[other].url())).await;
    assert!(
        told.contains("MOVED") && told.contains("use redis+cluster://"),
        "{told}"
    );
}

#[tokio::test]
async fn a_certificate_of_nobody_is_not_trusted() {
    let server = RedisServer::start_with_tls("");
    let url = server.url();
    let (untrusting, _) = url.split_once('?').expect("its certificate");
    let told = refusal(&*client(untrusting)).await;
    assert!(told.contains("certificate"), "{told}");
    assert!(
        refusal(&*client(&untrusting.replace("rediss", "redis")))
            .await
            .len()
            > 1
    );
}

#[tokio::test]
async fn what_no_replica_has_does_not_count() {
    let server = RedisServer::start("");
    let engine = client(&format!("{}?wait=1", server.url()));
    let mut next = write("cell", None, value(1, b""));
    loop {
        let told = set(&*engine, next.clone())
            .await
            .expect_err("not acknowledged")
            .0;
        // A write that is not acknowledged may be in the cell, and here it is.
        assert_eq!(read(&*engine, "cell").await, Ok(Some(next.value.clone())));
        if told.contains("not acknowledged by 1") {
            break;
        }
        // An overloaded server may not answer at all. Such a round proves nothing and is repeated.
        assert!(told.contains("no answer"), "{told}");
        next.expected = Version::of(&next.value);
        next.value = value(next.value[0] + 1, b"");
    }
}

#[tokio::test]
async fn a_server_that_cannot_tell_still_changes() {
    // This server has no sharded Pub/Sub, like servers before Redis 7.
    let server =
        RedisServer::start("rename-command spublish \"\"\nrename-command ssubscribe \"\"\n");
    let (engine, mut told) = listening(client(&server.url()));
    watch(&*engine, "cell").await;
    let mut write = write("cell", None, value(1, b""));
    write.notify = true;
    assert_eq!(set(&*engine, write).await, Ok(Written::Done));
    assert_eq!(read(&*engine, "cell").await, Ok(Some(value(1, b""))));
    assert!(told.notices.try_recv().is_err());
}
