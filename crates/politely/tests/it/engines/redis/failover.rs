//! Tests of a master and its replica under a Sentinel.

use politely::cells::Written;

use super::super::suite::listening;
use super::{client, heard_again, read, run, set, settled, value, watch, write};
use politely_testkit::redis::{RedisServer, Sentineled, wait_for};

#[tokio::test]
async fn a_promoted_replica_is_found_and_is_another_run() {
    let mut servers = Sentineled::start("");
    let url = servers.url() + "?wait=1";
    let (engine, mut told) = listening(client(&url));
    watch(&*engine, "cell").await;
    let written = set(&*engine, write("cell", None, value(1, b""))).await;
    assert_eq!(written, Ok(Written::Done), "the replica has it");
    let before = run(&*engine).await.expect("a heartbeat");
    servers.master.kill();
    servers.wait_for_promotion();
    let after = settled(async || run(&*engine).await).await;
    assert_ne!(before, after);
    assert_eq!(read(&*engine, "cell").await, Ok(Some(value(1, b""))));
    // From here on, no replica acknowledges writes.
    let alone = set(&*engine, write("cell", Some(1), value(2, b""))).await;
    assert!(alone.is_err());
    heard_again(&*engine, &mut told, "cell").await;
    // The old master returns as a replica.
    servers.master.start_again();
    servers.master.wait_for_info("master_link_status:up");
    let written = settled(async || set(&*engine, write("next", None, value(1, b""))).await).await;
    assert!([Written::Done, Written::Conflict(Some(value(1, b"")))].contains(&written));
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left() {
    let servers = Sentineled::start("");
    let (engine, mut told) = listening(client(&servers.url()));
    watch(&*engine, "cell").await;
    set(&*engine, write("cell", None, value(1, b"")))
        .await
        .expect("an answer");
    let before = run(&*engine).await.expect("a heartbeat");
    wait_for("the Sentinel knows the replica well enough", || {
        servers.sentinel.cli(&["sentinel", "failover", "mymaster"]) == "OK"
    });
    servers.wait_for_promotion();
    servers.master.wait_for_info("role:slave");
    let written = settled(async || set(&*engine, write("next", None, value(1, b""))).await).await;
    assert!([Written::Done, Written::Conflict(Some(value(1, b"")))].contains(&written));
    assert_ne!(settled(async || run(&*engine).await).await, before);
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn one_sentinel_that_hangs_is_not_waited_for() {
    let servers = Sentineled::start("");
    let hangs = RedisServer::start("");
    hangs.freeze();
    let url = servers.url();
    let url = url.replace("://", &format!("://{},", hangs.address));
    let engine = client(&url);
    let written = set(&*engine, write("cell", None, value(1, b""))).await;
    assert_eq!(written, Ok(Written::Done));
    let unknown = client(&url.replace("mymaster", "other"));
    let told = read(&*unknown, "cell").await.expect_err("no such master").0;
    assert!(
        told.contains("no master of that name") || told.contains("no answer"),
        "{told}"
    );
}

#[tokio::test]
async fn a_replica_that_hangs_keeps_changes_from_counting() {
    let servers = Sentineled::start("");
    let engine = client(&(servers.url() + "?wait=1"));
    assert_eq!(read(&*engine, "cell").await, Ok(None));
    servers.replica.freeze();
    let mut changing = std::pin::pin!(set(&*engine, write("cell", None, value(1, b""))));
    let reading = settled(async || match read(&*engine, "cell").await {
        Ok(Some(now)) => Ok(now),
        Ok(None) => Err(politely::cells::EngineError("not yet".to_owned())),
        Err(why) => Err(why),
    });
    // A client that writes nothing does not wait.
    tokio::select! {
        biased;
        changed = &mut changing => panic!("it did not wait: {changed:?}"),
        now = reading => assert_eq!(now, value(1, b"")),
    }
    assert!(changing.await.is_err());
    servers.replica.thaw();
    wait_for("it is back", || {
        servers.replica.cli(&["exists", "cell"]) == "1"
    });
    let written =
        settled(async || set(&*engine, write("cell", Some(1), value(2, b""))).await).await;
    assert!([Written::Done, Written::Conflict(Some(value(2, b"")))].contains(&written));
}

#[tokio::test]
async fn who_watches_follows_to_a_master_named_anew() {
    let servers = Sentineled::start("");
    let (engine, mut told) = listening(client(&servers.url()));
    watch(&*engine, "cell").await;
    heard_again(&*engine, &mut told, "cell").await;
    // The old master keeps running, and so do the connections that receive notices.
    let other = RedisServer::start("");
    let (ip, port) = (
        other.address.ip().to_string(),
        other.address.port().to_string(),
    );
    servers.sentinel.order(&["sentinel", "remove", "mymaster"]);
    servers
        .sentinel
        .order(&["sentinel", "monitor", "mymaster", &ip, &port, "1"]);
    servers.master.cli(&["client", "kill", "type", "normal"]);
    heard_again(&*engine, &mut told, "cell").await;
    assert_eq!(other.cli(&["pubsub", "shardchannels"]), "cell");
}
