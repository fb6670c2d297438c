//! Tests of locks on keys, in one process and over an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use politely::cells::Memory;
use politely::{Clock, Key, Limiter};

fn key() -> Key {
    Key::host("h.example").unwrap()
}

/// Runs ten tasks over `limiters` that lock one key for two. Checks that at most two hold it at
/// once, and that their numbers grow.
async fn ten_tasks(limiters: Vec<Limiter>) {
    let (inside, last) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(tokio::sync::Mutex::new(0)),
    );
    let tasks = (0..10).map(|at| {
        let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
        let limiter = limiters[at % limiters.len()].clone();
        tokio::spawn(async move {
            let lock = limiter.lock(&key(), 2).await.unwrap();
            assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
            let mut last = last.lock().await;
            *last = lock.fencing().max(*last);
            drop(last);
            tokio::task::yield_now().await;
            assert!(!lock.is_lost());
            inside.fetch_sub(1, Ordering::SeqCst);
            lock.fencing()
        })
    });
    let mut numbers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        numbers.push(task.await.unwrap());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_two_tasks_hold_a_key() {
    ten_tasks(vec![Limiter::builder().build().unwrap()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_two_tasks_of_two_processes_hold_a_key() {
    let memory = Memory::new(Clock::system());
    let limiter = || {
        let engine = Arc::new(memory.clone());
        Limiter::builder().store(engine).build().unwrap()
    };
    ten_tasks(vec![limiter(), limiter()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_that_leaves_holds_nothing_up() {
    let limiter = Limiter::builder().build().unwrap();
    let first = limiter.lock(&key(), 1).await.unwrap();
    let (one, two) = (limiter.clone(), limiter.clone());
    let leaves = tokio::spawn(async move { one.lock(&key(), 1).await.unwrap().fencing() });
    while limiter.locks(&key()).unwrap().locks.claims().len() < 2 {
        tokio::task::yield_now().await;
    }
    let stays = tokio::spawn(async move { two.lock(&key(), 1).await.unwrap().fencing() });
    leaves.abort();
    drop(leaves.await);
    let number = first.fencing();
    drop(first);
    assert!(stays.await.unwrap() > number);
    // A restored key has no locks: their holders are gone.
    let held = limiter.lock(&key(), 1).await.unwrap();
    let saved = limiter.snapshot(&key()).unwrap();
    let later = Limiter::builder().build().unwrap();
    later.restore(&key(), &saved.state).unwrap();
    assert!(later.lock(&key(), 1).await.unwrap().fencing() > held.fencing());
}
