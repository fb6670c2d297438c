//! A whole crawl in virtual time: a frontier in memory, a gate with one limit per domain, and
//! workers that are as slow as requests are. The test and the bench `crawl` run it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::{Rng, Timestamp};
use politely_frontier::{
    CrawlName, Date, Frontier, GiveBack, MemoryStore, Moment, NewPage, Next, PageOutcome, Settings,
    Take, Unit,
};

/// The time ahead for which a gate hands out pages, as the coordinator's does.
const AHEAD: Duration = Duration::from_secs(2);
/// The number of pages in one call.
const BATCH: usize = 5_000;

/// A crawl with random limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of domains.
    pub(crate) domains: u32,
    /// The number of workers. Each has one unit at a time.
    pub(crate) workers: usize,
    /// The longest interval of a domain's limit. The shortest is a hundredth of it.
    pub(crate) interval_max: Duration,
    /// The most pages of a domain. The fewest is one.
    pub(crate) pages_max: u32,
}

/// What happened in a crawl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The visited pages.
    pub(crate) pages: u64,
    /// The time of the crawl.
    pub(crate) total: Duration,
    /// A time that no schedule can undercut: the slowest domain alone, or the work of all workers.
    pub(crate) best: Duration,
    /// The longest time for which a domain was not handed out although its limit allowed it.
    pub(crate) longest_wait: Duration,
}

/// A domain as the hosts of the simulation know it.
struct Host {
    interval: Duration,
    /// The limit allows no request before this time.
    next: Timestamp,
    /// Since this time the domain has no owner and its limit allows a request.
    free: Timestamp,
    pages: u32,
}

/// Visits all pages of a crawl.
pub(crate) fn run(plan: Plan, seed: u64) -> Run {
    let mut rng = Rng::new(seed);
    let mut hosts: Vec<_> = (0..plan.domains).map(|_| host(&plan, &mut rng)).collect();
    let store = MemoryStore::default();
    let mut frontier =
        Frontier::open(store, Settings::default(), seed, moment(start())).expect("an empty store");
    let crawl: CrawlName = "virtual".parse().expect("a name");
    let mut pages = hosts.iter().zip(0..).flat_map(|(host, number)| {
        let url = move |page| NewPage::of_url(format!("https://{number}.test/{page}"));
        (0..host.pages).map(url)
    });
    loop {
        let batch: Vec<_> = pages.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        frontier
            .put(&crawl, batch, moment(start()))
            .expect("a working store");
    }
    drop(pages);
    let mut now = start();
    let mut idle = plan.workers;
    let mut busy = BinaryHeap::new();
    let mut units: Vec<Option<Unit>> = (0..plan.workers).map(|_| None).collect();
    let mut free: Vec<usize> = (0..plan.workers).collect();
    let (mut visited, mut work) = (0, Duration::ZERO);
    let mut longest_wait = Duration::ZERO;
    loop {
        while idle > 0 {
            let mut gate = |name: &str, pages: u32| grant(&mut hosts[number(name)], pages, now);
            let taken = frontier.take(&wish(), moment(now), &mut gate);
            let Some(unit) = taken.expect("a working store") else {
                break;
            };
            let host = &mut hosts[number(&unit.domain)];
            longest_wait = longest_wait.max(now.since(host.free));
            let count = unit.pages.len() as u32;
            let request = Duration::from_millis(50 + rng.next_u64() % 400);
            work += request * count;
            let end = now + host.interval * (count - 1) + request;
            let worker = free.pop().expect("an idle worker");
            units[worker] = Some(unit);
            busy.push(Reverse((end, worker)));
            idle -= 1;
        }
        let end = busy.peek().map(|Reverse((end, _))| *end);
        let wake = frontier
            .wake(moment(now))
            .filter(|_| idle > 0)
            .map(|wait| now + wait.max(Duration::from_micros(1)));
        let Some(next) = [end, wake].into_iter().flatten().min() else {
            break;
        };
        now = next;
        while let Some(Reverse((_, worker))) = busy.pop_if_due(now) {
            let unit = units[worker].take().expect("a busy worker");
            visited += unit.pages.len() as u64;
            let host = &mut hosts[number(&unit.domain)];
            host.free = host.next.max(now);
            frontier
                .give_back(finished(unit), moment(now))
                .expect("the owner");
            free.push(worker);
            idle += 1;
        }
    }
    let alone = hosts.iter().map(|host| host.interval * (host.pages - 1));
    Run {
        pages: visited,
        total: now.since(start()),
        best: alone
            .max()
            .unwrap_or_default()
            .max(work / u32::try_from(plan.workers).expect("a bounded crawl")),
        longest_wait,
    }
}

/// A queue of times.
trait Due {
    fn pop_if_due(&mut self, now: Timestamp) -> Option<Reverse<(Timestamp, usize)>>;
}

impl Due for BinaryHeap<Reverse<(Timestamp, usize)>> {
    fn pop_if_due(&mut self, now: Timestamp) -> Option<Reverse<(Timestamp, usize)>> {
        self.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.pop()
    }
}

fn host(plan: &Plan, rng: &mut Rng) -> Host {
    let exponent = -2.0 * rng.unit();
    Host {
        interval: plan.interval_max.mul_f64(10_f64.powf(exponent)),
        next: start(),
        free: start(),
        pages: 1 + (rng.next_u64() % u64::from(plan.pages_max)) as u32,
    }
}

/// Grants the pages that the limit allows within two seconds.
fn grant(host: &mut Host, pages: u32, now: Timestamp) -> Result<u32, Duration> {
    if host.next > now {
        return Err(host.next.since(now));
    }
    let within = AHEAD.as_micros() / host.interval.as_micros().max(1);
    let granted = pages.min(1 + u32::try_from(within).unwrap_or(u32::MAX - 1));
    host.next = now + host.interval * granted;
    Ok(granted)
}

fn number(name: &str) -> usize {
    let digits = name.strip_suffix(".test").expect("a domain of the crawl");
    digits.parse().expect("a number")
}

fn wish() -> Take {
    Take {
        crawl: None,
        pages_max: 10,
        lease: Duration::from_mins(10),
        shares_domain: false,
    }
}

fn finished(unit: Unit) -> GiveBack {
    let outcome = |page: politely_frontier::TakenPage| PageOutcome {
        url: page.url,
        status: 200,
        next: Next::Never,
    };
    GiveBack {
        outcomes: unit.pages.into_iter().map(outcome).collect(),
        ..GiveBack::of_token(unit.token)
    }
}

fn start() -> Timestamp {
    Timestamp::from_micros(1_000_000)
}

fn moment(at: Timestamp) -> Moment {
    Moment {
        at,
        date: Date::from_millis(at.as_micros() / 1_000).expect("before the year 9999"),
    }
}
