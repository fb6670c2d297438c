//! Compares implementations of the next-host queue. Each operation pops the host that is due first
//! and pushes it back, due again after its delay.
//!
//! Delays are log-uniform from 0.1 to 60 s, like the intervals of crawled hosts. All
//! implementations get the same hosts and delays and pop them in the same order, which is checked,
//! so only the times differ. Compare ratios within one run: other load on the machine changes
//! absolute times by a factor of two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use politely_core::queue::NextQueue;
use politely_core::{Rng, Timestamp};

/// The result of one implementation at one size.
#[derive(Debug)]
pub(crate) struct Row {
    /// Hosts in the queue.
    pub(crate) hosts: u32,
    /// The implementation of the queue.
    pub(crate) queue: &'static str,
    /// Pop and push back, median of the rounds, in nanoseconds.
    pub(crate) ns_per_op: f64,
    /// The slowest single pop of a round that was timed pop by pop.
    pub(crate) slowest_pop: Duration,
    /// Growth of the resident memory per host, in bytes; `None` if `/proc` does not report it. It
    /// is inexact below a million hosts.
    pub(crate) bytes_per_host: Option<f64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            hosts,
            queue,
            ns_per_op,
            slowest_pop,
            bytes_per_host,
        } = self;
        write!(
            f,
            "{hosts:>10} hosts  {queue:<22} {ns_per_op:>7.1} ns/op  slowest pop {slowest_pop:>9.1?}"
        )?;
        bytes_per_host.map_or(Ok(()), |bytes| write!(f, "  {bytes:>5.1} B/host"))
    }
}

/// Measures 1 k, 1 M and 10 M hosts, and prints each row when it is known. It takes about two
/// minutes.
pub(crate) fn run() -> Vec<Row> {
    let mut rows = Vec::new();
    for hosts in [1_000, 1_000_000, 10_000_000] {
        let (ours, our_order) = measure::<NextQueue<u32>>("politely NextQueue", hosts);
        println!("{ours}");
        let (heap, its_order) = measure::<Heap>("std BinaryHeap", hosts);
        println!("{heap}   ratio {:.2}", ours.ns_per_op / heap.ns_per_op);
        assert_eq!(
            our_order, its_order,
            "the queues disagree about the order of {hosts} hosts"
        );
        rows.extend([ours, heap]);
    }
    rows
}

trait Queue: Default {
    fn push(&mut self, due: Timestamp, host: u32);
    fn pop(&mut self) -> Option<(Timestamp, u32)>;
}

impl Queue for NextQueue<u32> {
    fn push(&mut self, due: Timestamp, host: u32) {
        Self::push(self, due, host);
    }

    fn pop(&mut self) -> Option<(Timestamp, u32)> {
        self.pop_due(Timestamp::NEVER)
    }
}

/// The simplest implementation: a binary heap with a sequence number that keeps equal due times in
/// order of insertion. The number wraps after 4 G pushes, which this run does not reach.
#[derive(Default)]
struct Heap {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    seq: u32,
}

impl Queue for Heap {
    fn push(&mut self, due: Timestamp, host: u32) {
        self.seq += 1;
        self.heap.push(Reverse((due.as_micros(), self.seq, host)));
    }

    fn pop(&mut self) -> Option<(Timestamp, u32)> {
        self.heap
            .pop()
            .map(|Reverse((due, _, host))| (Timestamp::from_micros(due), host))
    }
}

/// Number of timed rounds. One more round before them brings the queue to its steady state.
const ROUNDS: usize = 5;

/// Returns the row and a digest of the order of all pops.
fn measure<Q: Queue>(name: &'static str, hosts: u32) -> (Row, u64) {
    let delays = delays();
    let mut cycle = (0..delays.len()).cycle().map(|i| delays[i]);
    let resident_before = resident_bytes();

    let (mut queue, mut rng, mut order) = (Q::default(), Rng::new(7), 0_u64);
    for host in 0..hosts {
        queue.push(Timestamp::from_secs_f64(rng.between(0.0, 60.0)), host);
    }
    let ops = hosts.clamp(1_000_000, 10_000_000);
    let mut round = |queue: &mut Q, slowest: Option<&mut Duration>| {
        let mut slowest = slowest;
        let began = Instant::now();
        for _ in 0..ops {
            let popping = slowest.as_ref().map(|_| Instant::now());
            let Some((due, host)) = black_box(queue.pop()) else {
                break;
            };
            if let (Some(popping), Some(slowest)) = (popping, slowest.as_deref_mut()) {
                *slowest = (*slowest).max(popping.elapsed());
            }
            order = order
                .wrapping_mul(31)
                .wrapping_add(due.as_micros() ^ u64::from(host));
            queue.push(due + cycle.next().unwrap_or_default(), host);
        }
        began.elapsed().as_nanos() as f64 / f64::from(ops)
    };
    round(&mut queue, None);
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round(&mut queue, None)).collect();
    times.sort_by(f64::total_cmp);
    let mut slowest_pop = Duration::ZERO;
    round(&mut queue, Some(&mut slowest_pop));
    let grown = resident_before
        .zip(resident_bytes())
        .map(|(before, after)| after.saturating_sub(before));
    let bytes_per_host = grown.map(|bytes| bytes as f64 / f64::from(hosts));
    (
        Row {
            hosts,
            queue: name,
            ns_per_op: times[ROUNDS / 2],
            slowest_pop,
            bytes_per_host,
        },
        order,
    )
}

/// Returns a million delays. They are drawn beforehand, because drawing one costs as much as a
/// push.
fn delays() -> Vec<Duration> {
    let mut rng = Rng::new(1);
    (0..1 << 20)
        .map(|_| Duration::from_micros((1e5 * 600_f64.powf(rng.unit())) as u64))
        .collect()
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
