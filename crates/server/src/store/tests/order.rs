//! Tests of snapshots that are read in one order and queued in the other.

use super::failing;
use super::*;

#[tokio::test]
async fn of_two_snapshots_in_one_transaction_the_newer_stays() {
    let dir = tempdir().unwrap();
    let (store, moods) = failing::store(dir.path());
    moods.set_slow(true);
    let first = store.keep_now(vec![("first".into(), state(1))]);
    moods.wait_until_stuck();
    let newer = store.keep_now(vec![("k".into(), state(2))]);
    let older = store.keep_now(vec![("k".into(), state(1))]);
    let configs = [
        store.keep_config(b"newer".to_vec(), 2),
        store.keep_config(b"older".to_vec(), 1),
    ];
    moods.set_slow(false);
    first.await.unwrap();
    newer.await.unwrap();
    older.await.unwrap();
    for config in configs {
        config.await.unwrap();
    }
    assert_eq!(states(&store)["k"], 2);
    store.close();
    drop(store);
    let (_, kept) = Store::open(dir.path()).unwrap();
    assert_eq!(kept.config, Some(b"newer".to_vec()));
}

#[tokio::test]
async fn an_older_snapshot_never_replaces_what_the_table_holds() {
    let dir = tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    store.keep_now(vec![("k".into(), state(2))]).await.unwrap();
    store.keep_config(b"newer".to_vec(), 2).await.unwrap();
    store.keep_now(vec![("k".into(), state(1))]).await.unwrap();
    store.keep_config(b"older".to_vec(), 1).await.unwrap();
    assert_eq!(states(&store)["k"], 2);
    store.learned([("k".to_owned(), state(1))]);
    store.close();
    assert_eq!(states(&store)["k"], 2);
    drop(store);
    // Versions of a later run are higher, even if its count begins lower.
    let (store, kept) = Store::open(dir.path()).unwrap();
    assert_eq!(kept.config, Some(b"newer".to_vec()));
    store.keep_now(vec![("k".into(), state(1))]).await.unwrap();
    assert_eq!(states(&store)["k"], 1);
}

#[tokio::test]
async fn a_learned_state_and_a_hold_may_come_in_any_order() {
    let dir = tempdir().unwrap();
    let (store, moods) = failing::store(dir.path());
    moods.set_slow(true);
    let first = store.keep_now(vec![("first".into(), state(1))]);
    moods.wait_until_stuck();
    // Each learned state was read after the hold of its key, or before it.
    store.learned([
        ("late".to_owned(), state(3)),
        ("early".to_owned(), state(1)),
    ]);
    let held = store.keep_now(vec![("late".into(), state(2)), ("early".into(), state(2))]);
    moods.set_slow(false);
    first.await.unwrap();
    held.await.unwrap();
    let kept = states(&store);
    assert_eq!((kept["late"], kept["early"]), (3, 2));
    store.close();
    let kept = states(&store);
    assert_eq!((kept["late"], kept["early"]), (3, 2));
}
