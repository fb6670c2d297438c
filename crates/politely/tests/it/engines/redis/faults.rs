//! Tests of one server that forgets its script, loses its connections, restarts, hangs, or is not
//! started yet.

use politely::cells::{Write, Written};

use super::super::suite::listening;
use super::{client, ends, heard_again, read, run, set, settled, value, watch, write};
use politely_testkit::redis::{RedisServer, wait_for};

#[tokio::test]
async fn a_forgotten_script_is_nobodys_concern() {
    let server = RedisServer::start("");
    let engine = client(&server.url());
    let cells = ["a", "b", "c"];
    for (known, version) in [(None, 1), (Some(1), 2), (Some(2), 3)] {
        let writes = cells.map(|cell| write(cell, known, value(version, b"")));
        let written = engine.compare_and_set(writes.to_vec()).await;
        assert_eq!(written, vec![Ok(Written::Done); 3]);
        if version == 2 {
            server.order(&["script", "flush"]);
        }
    }
    // The script is sent as a whole when the server did not know it, and by its hash otherwise. So
    // the client computes the correct hash.
    assert_eq!((calls(&server, "eval"), calls(&server, "evalsha")), (6, 9));
}

#[tokio::test]
async fn a_cut_connection_costs_one_call_at_most() {
    let server = RedisServer::start("");
    let (engine, mut told) = listening(client(&server.url()));
    watch(&*engine, "cell").await;
    set(&*engine, write("cell", None, value(1, b"")))
        .await
        .expect("an answer");
    for kind in ["normal", "pubsub"] {
        server.cli(&["client", "kill", "type", kind]);
    }
    // The first call may or may not notice the cut. The second call has a new connection.
    let _ = read(&*engine, "cell").await;
    assert_eq!(read(&*engine, "cell").await, Ok(Some(value(1, b""))));
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn a_restart_is_another_run_and_watchers_are_told_again() {
    let mut server = RedisServer::start("");
    let (engine, mut told) = listening(client(&server.url()));
    watch(&*engine, "cell").await;
    set(&*engine, write("cell", None, value(1, b"")))
        .await
        .expect("an answer");
    let before = run(&*engine).await.expect("a heartbeat");
    server.kill();
    let why = read(&*engine, "cell").await.expect_err("nobody is there");
    assert!(why.0.contains(&server.address.to_string()), "{why}");
    let written = set(&*engine, write("cell", Some(1), value(2, b""))).await;
    assert!(written.is_err() && run(&*engine).await.is_err());
    server.start_again();
    let after = settled(async || run(&*engine).await).await;
    assert_ne!(before, after);
    assert_eq!(read(&*engine, "cell").await, Ok(None));
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn what_the_server_kept_on_disk_is_there_after_a_restart() {
    let mut server = RedisServer::start("appendonly yes\nappendfsync always\n");
    let engine = client(&server.url());
    set(&*engine, write("cell", None, value(1, b"kept")))
        .await
        .expect("an answer");
    server.kill();
    server.start_again();
    let kept = settled(async || read(&*engine, "cell").await).await;
    assert_eq!(kept, Some(value(1, b"kept")));
}

#[tokio::test]
async fn a_frozen_server_keeps_nobody() {
    let server = RedisServer::start("");
    let engine = client(&server.url());
    set(&*engine, write("cell", None, value(1, b"")))
        .await
        .expect("an answer");
    server.freeze();
    assert!(ends(read(&*engine, "cell")).await.is_err());
    let written = ends(set(&*engine, write("cell", Some(1), value(2, b"")))).await;
    assert!(written.is_err() && ends(run(&*engine)).await.is_err());
    let watched = ends(engine.watch(vec!["cell".into()], vec![])).await;
    assert!(watched.is_err());
    server.thaw();
    // A failed call may or may not have been carried out.
    let now = settled(async || read(&*engine, "cell").await).await;
    assert!([Some(value(1, b"")), Some(value(2, b""))].contains(&now));
}

#[tokio::test]
async fn a_server_may_come_later() {
    let mut server = RedisServer::start("");
    server.kill();
    let (engine, mut told) = listening(client(&server.url()));
    let watched = ends(engine.watch(vec!["cell".into()], vec![])).await;
    told.unheard = watched.is_err();
    assert!(told.unheard);
    let many = (0..100).map(|i| format!("{i}").into()).collect();
    assert!(ends(engine.read(many)).await.iter().all(Result::is_err));
    server.start_again();
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn a_cell_nobody_changes_is_forgotten_in_time() {
    let server = RedisServer::start("");
    let engine = client(&server.url());
    let mut write = write("cell", None, value(1, b""));
    set(&*engine, write.clone()).await.expect("an answer");
    let left_ms: u64 = server.cli(&["pttl", "cell"]).parse().expect("milliseconds");
    assert!((1..=600_000).contains(&left_ms));
    // An endless time is sent as a thousand years.
    write.keep = std::time::Duration::MAX;
    write.expected = Some(politely::cells::Version([1; 16]));
    assert_eq!(set(&*engine, write).await, Ok(Written::Done));
    let left_ms: u64 = server.cli(&["pttl", "cell"]).parse().expect("milliseconds");
    assert!(left_ms > 600_000);
}

#[tokio::test]
async fn who_is_dropped_leaves_no_connection_behind() {
    let server = RedisServer::start("");
    let (engine, _told) = listening(client(&server.url()));
    watch(&*engine, "cell").await;
    read(&*engine, "cell").await.expect("an answer");
    assert_eq!(server.cli(&["client", "list"]).lines().count(), 3);
    drop(engine);
    tokio::task::spawn_blocking(move || {
        wait_for("only we are there", || {
            server.cli(&["client", "list"]).lines().count() == 1
        });
    })
    .await
    .expect("it ends");
}

/// Returns the number of calls of a command, as the server counts them.
fn calls(server: &RedisServer, command: &str) -> u32 {
    let stats = server.cli(&["info", "commandstats"]);
    let name = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |rest| {
        rest.split(',').next().expect("a number").parse().unwrap()
    })
}

#[tokio::test]
async fn who_can_compare_by_itself_does_and_who_cannot_is_asked_once() {
    for (server, scripts) in [
        (RedisServer::start_valkey(), 1),
        (RedisServer::start(""), 4),
    ] {
        let engine = client(&server.url());
        let mut before = None;
        for version in 1..=4 {
            let value = value(version, b"");
            let known = before.replace(value.clone());
            let write = Write {
                before: known.as_deref().map(Into::into),
                ..write("cell", known.map(|known| known[0]), value)
            };
            assert_eq!(set(&*engine, write).await, Ok(Written::Done));
        }
        // The server does not know the script at first, so it is sent as a whole once. The count
        // includes calls that failed.
        let by_script = calls(&server, "evalsha") + calls(&server, "eval");
        assert_eq!(by_script, scripts + 1, "{}", server.url());
    }
}
