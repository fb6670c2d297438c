//! Compares commits through the `ZooKeeper` adapter with plain versioned `setData` of the same
//! bytes, on one ensemble of three servers in one run.
//!
//! Run it with `cargo run --profile dist -p politely-benches ensemble`. Both sides use one session
//! and have [`AT_ONCE`] batches of [`BATCH`] changes under way. Rounds alternate, and each figure
//! is the median of its rounds. Servers and callers share the machine.
//!
//! Then [`COORDINATORS`] limiters share one key that limits none of their callers. A permit is
//! acquired and reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use politely::cells::zookeeper::ZooKeeper;
use politely::cells::{Engine, Version, Write, Written};
use politely::{Key, Report, Signal};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::cells::{HEAD, learning, median, quiet, version};
use crate::shared::{settle, shared, unlimited};
use politely_testkit::zookeeper::Ensemble;

const BATCH: usize = 64;
const AT_ONCE: usize = 4;
const ROUNDS: usize = 3;
const COMMITS_PER_ROUND: usize = 20_000;
const CELLS: usize = BATCH * AT_ONCE;
const COORDINATORS: usize = 4;
const CALLERS: usize = 64;
const ONE_KEY: Duration = Duration::from_secs(10);

/// Runs everything and prints the table.
pub(crate) fn run() {
    let runtime = crate::runtime(&mut Builder::new_current_thread());
    println!("| state | bytes of a value | setData/s | commits/s | ratio |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, state) in [("quiet", quiet()), ("learning", learning())] {
        let ensemble = Ensemble::start();
        runtime.block_on(measure(&ensemble, name, &state));
    }
    let ensemble = Ensemble::start();
    let per_s = runtime.block_on(one_key(&ensemble));
    println!("permits of one key, {COORDINATORS} coordinators, a second: {per_s:.0}");
}

/// Returns the permits per second of one key.
async fn one_key(ensemble: &Ensemble) -> f64 {
    let key = Key::host("one.example.com").expect("a host");
    let engine = || ZooKeeper::connect(&ensemble.url("/one")).expect("a URL");
    let limiters: Vec<_> = (0..COORDINATORS)
        .map(|_| shared(Arc::new(engine()), &unlimited()))
        .collect();
    settle(&limiters).await;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for limiter in limiters.iter().flat_map(|limiter| [limiter; CALLERS]) {
        let (limiter, key) = (limiter.clone(), key.clone());
        tasks.spawn(async move {
            let mut count = 0_u32;
            while began.elapsed() < ONE_KEY {
                let permit = limiter.acquire(&key).await.expect("a permit");
                permit.report(&Report::of(Signal::Ok));
                count += 1;
            }
            count
        });
    }
    let counts = tasks.join_all().await;
    counts.into_iter().map(f64::from).sum::<f64>() / began.elapsed().as_secs_f64()
}

async fn measure(ensemble: &Ensemble, name: &str, state: &[u8]) {
    let engine = ZooKeeper::connect(&ensemble.url("/ours")).expect("a URL");
    let raw = Client::connect(&ensemble.servers())
        .await
        .expect("a session");
    let bytes = Version::LEN + HEAD + state.len();
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for cell in 0..CELLS {
        let created = raw.create(&path(cell), &vec![7; bytes], &persistent).await;
        created.expect("a new znode");
    }
    let cells: Vec<usize> = (0..CELLS).collect();
    commit(&engine, state, 0, &cells, BATCH).await;

    let (mut sets, mut ours, mut done) = (Vec::new(), Vec::new(), 0_u32);
    for _ in 0..ROUNDS {
        let (first, last) = (done, done + (COMMITS_PER_ROUND / CELLS) as u32);
        done = last;
        let count = f64::from(last - first) * CELLS as f64;
        let began = Instant::now();
        for round in first..last {
            let data = vec![7; bytes];
            let set = |cell| raw.set_data(&path(cell), &data, Some(round.cast_signed()));
            for stat in join_all((0..CELLS).map(set)).await {
                stat.expect("no other client writes");
            }
        }
        sets.push(count / began.elapsed().as_secs_f64());
        let began = Instant::now();
        for round in first..last {
            commit(&engine, state, round + 1, &cells, BATCH).await;
        }
        ours.push(count / began.elapsed().as_secs_f64());
    }
    let (set, our) = (median(&mut sets), median(&mut ours));
    println!(
        "| {name} | {bytes} | {set:.0} | {our:.0} | {:.2} |",
        our / set
    );
}

/// Changes each of `cells` once, from the version `known` to the next one, in batches of `size`.
pub(crate) async fn commit(
    engine: &dyn Engine,
    state: &[u8],
    known: u32,
    cells: &[usize],
    size: usize,
) {
    let write = |&cell: &usize| Write {
        cell: Arc::from(format!("politely:host-{cell}.example.com")),
        expected: (known > 0).then(|| version(cell, known)),
        before: None,
        value: [&version(cell, known + 1).0, &[7; HEAD][..], state].concat(),
        keep: Duration::from_hours(24),
        notify: false,
    };
    let batch = |cells: &[usize]| engine.compare_and_set(cells.iter().map(write).collect());
    let batches = join_all(cells.chunks(size).map(batch)).await;
    for written in batches.concat() {
        assert_eq!(written, Ok(Written::Done), "no other client writes");
    }
}

fn path(cell: usize) -> String {
    format!("/raw-{cell:07}.example.com")
}
