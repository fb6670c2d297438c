//! Tests of a cluster whose slots move and whose masters fail.

use std::sync::Arc;

use politely::cells::{Version, Written};

use super::super::suite::listening;
use super::{client, ends, heard_again, read, run, set, settled, value, watch, write};
use politely_testkit::redis::Cluster;

#[tokio::test]
async fn a_slot_that_moves_takes_its_cells_along() {
    let cluster = Cluster::start();
    let (engine, mut told) = listening(client(&cluster.url()));
    watch(&*engine, "cell").await;
    set(&*engine, write("cell", None, value(1, b"")))
        .await
        .expect("an answer");
    let before = run(&*engine).await.expect("a heartbeat");
    let from = cluster.owner("cell");
    let to = (from + 1) % cluster.nodes.len();
    // The new owner does not know the script. It answers only calls that the old owner redirected
    // with ASK.
    cluster.begin_move("cell", from, to);
    cluster.nodes[to].order(&["script", "flush"]);
    let written = set(&*engine, write("cell", Some(1), value(2, b""))).await;
    assert_eq!(written, Ok(Written::Done));
    let batch = vec!["cell".into(), "elsewhere".into()];
    assert_eq!(
        engine.read(batch).await,
        [Ok(Some(value(2, b""))), Ok(None)]
    );
    cluster.end_move("cell", from, to);
    let written = set(&*engine, write("cell", Some(2), value(3, b""))).await;
    assert_eq!(written, Ok(Written::Done));
    assert_eq!(read(&*engine, "cell").await, Ok(Some(value(3, b""))));
    assert_eq!(cluster.nodes[to].cli(&["exists", "cell"]), "1");
    assert_eq!(run(&*engine).await, Ok(before), "nothing was lost");
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn the_epochs_owner_may_change() {
    let cluster = Cluster::start();
    let engine = client(&cluster.url());
    set(&*engine, write("epoch", None, value(1, b"")))
        .await
        .expect("an answer");
    let before = engine.heartbeat("epoch".into()).await.expect("a heartbeat");
    let from = cluster.owner("epoch");
    let to = (from + 1) % cluster.nodes.len();
    cluster.begin_move("epoch", from, to);
    cluster.end_move("epoch", from, to);
    let after = settled(async || engine.heartbeat("epoch".into()).await).await;
    assert_eq!((after.run, after.epoch), (before.run, before.epoch));
}

#[tokio::test]
async fn a_promoted_replica_is_another_run() {
    let mut cluster = Cluster::start();
    let owner = cluster.owner("cell");
    let replica = cluster.replica_of(owner);
    let (engine, mut told) = listening(client(&(cluster.url() + "?wait=1")));
    watch(&*engine, "cell").await;
    let written = set(&*engine, write("cell", None, value(1, b""))).await;
    assert_eq!(written, Ok(Written::Done), "the replica has it");
    let before = run(&*engine).await.expect("a heartbeat");
    cluster.nodes[owner].kill();
    replica.wait_for_info("role:master");
    let after = settled(async || run(&*engine).await).await;
    assert_ne!(before, after);
    let kept = settled(async || read(&*engine, "cell").await).await;
    assert_eq!(kept, Some(value(1, b"")));
    heard_again(&*engine, &mut told, "cell").await;
}

#[tokio::test]
async fn one_frozen_node_fails_its_own_cells_alone() {
    let cluster = Cluster::start();
    let engine = client(&cluster.url());
    let cells: Vec<Arc<str>> = (0..30).map(|i| format!("cell-{i}").into()).collect();
    let writes = |expected: Option<u8>, version| {
        let of = |cell: &Arc<str>| write(cell, expected, value(version, b""));
        cells.iter().map(of).collect::<Vec<_>>()
    };
    let made = engine.compare_and_set(writes(None, 1)).await;
    assert_eq!(made, vec![Ok(Written::Done); cells.len()]);
    let frozen = cluster.owner(&cells[0]);
    let owners: Vec<usize> = cells.iter().map(|cell| cluster.owner(cell)).collect();
    cluster.nodes[frozen].freeze();
    let changed = ends(engine.compare_and_set(writes(Some(1), 2))).await;
    for (changed, owner) in changed.into_iter().zip(&owners) {
        if *owner == frozen {
            assert!(changed.is_err());
        } else {
            assert_eq!(changed, Ok(Written::Done));
        }
    }
    cluster.nodes[frozen].thaw();
    for (cell, owner) in cells.iter().zip(owners) {
        let now = settled(async || read(&*engine, cell).await).await;
        let version = now.as_deref().and_then(Version::of);
        assert!(version == Some(Version([2; 16])) || owner == frozen);
    }
}
