//! P11: the good pages of a host are served at the pace they would have alone, whatever its bad pages do.
//!
//! A small fetcher drives a [`Host`] in virtual time. It sends untried pages first and lets one page that
//! failed go in ten departures, once that page's own wait is over: so do `politely fetch` and the clients.
//!
//! The pace alone is that of a crawl of as many pages that are all good. A refusal with a Retry-After holds
//! the host once, since its first sight tells no page from its host; each crawl here is long enough for
//! that one hold to be less than a tenth of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use politely_core::config::Config;
use politely_core::host::{Ask, Decision, Host};
use politely_core::signal::{Failure, Report, Resource, Signal};
use politely_core::{Rng, Timestamp};
use proptest::prelude::*;

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// A page that failed so often is given up.
const ATTEMPTS_MAX: u32 = 8;

/// What a page answers, always.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Good,
    /// This status, with this Retry-After in seconds unless it is 0.
    Status(u16, u64),
    Reset,
    ShortBody,
    BrokenCoding,
}

impl Page {
    fn report(self, url: &str) -> Report {
        let status = |signal, status| Report {
            status: Some(status),
            ..Report::of(signal)
        };
        let failed = |signal, failure| Report {
            failure: Some(failure),
            ..Report::of(signal)
        };
        let mut report = match self {
            Self::Good => status(Signal::Ok, 200),
            Self::Status(code, after) => {
                let signal = match code {
                    404 | 410 | 301 => Signal::Ok,
                    429 => Signal::RateLimited,
                    403 | 500 if after == 0 => Signal::UrlError,
                    _ if after > 0 => Signal::RateLimited,
                    _ => Signal::Overloaded,
                };
                let asked = Some(Duration::from_secs(after));
                Report {
                    retry_after: asked.filter(|after| !after.is_zero()),
                    ..status(signal, code)
                }
            }
            Self::Reset => failed(Signal::Overloaded, Failure::Reset),
            Self::ShortBody => Report {
                status: Some(200),
                ..failed(Signal::Overloaded, Failure::Reset)
            },
            Self::BrokenCoding => failed(Signal::UrlError, Failure::Malformed),
        };
        report.latency = ROUND_TRIP;
        report.resource = Some(Resource::of(url));
        report
    }
}

struct Tried {
    page: usize,
    attempts: u32,
}

/// A crawl of `pages`, and what became of it.
struct Crawl {
    host: Host,
    config: Config,
    rng: Rng,
    pages: Vec<Page>,
    now: Timestamp,
    began: Timestamp,
    /// When the last good page was served.
    good_after: Duration,
    served: usize,
    /// Reports that said that the host is at fault.
    blamed: usize,
    longest_wait: Duration,
}

impl Crawl {
    fn of(pages: Vec<Page>, config: Config, seed: u64) -> Self {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        Self {
            host: Host::new(&config, now),
            config,
            rng: Rng::new(seed),
            pages,
            now,
            began: now,
            good_after: Duration::ZERO,
            served: 0,
            blamed: 0,
            longest_wait: Duration::ZERO,
        }
    }

    fn run(mut self) -> Self {
        let mut fresh: VecDeque<usize> = (0..self.pages.len()).collect();
        let mut again: BinaryHeap<Reverse<(Timestamp, usize, u32)>> = BinaryHeap::new();
        let mut under_way: BinaryHeap<Reverse<(Timestamp, u64, usize, u32)>> = BinaryHeap::new();
        let mut departures = 0_u32;
        let good = self
            .pages
            .iter()
            .filter(|page| **page == Page::Good)
            .count();
        while self.served < good {
            let due = again.peek().is_some_and(|Reverse(next)| next.0 <= self.now);
            let mut wake = Timestamp::NEVER;
            if due || !fresh.is_empty() {
                match self.host.request(self.now, Ask::default(), &self.config) {
                    Decision::Granted(grant) => {
                        departures += 1;
                        let retry = due && (fresh.is_empty() || departures.is_multiple_of(10));
                        let (page, attempts) = if retry {
                            let Reverse((_, page, attempts)) = again.pop().expect("it is due");
                            (page, attempts)
                        } else {
                            (
                                fresh
                                    .pop_front()
                                    .or_else(|| again.pop().map(|Reverse(next)| next.1))
                                    .expect("a page"),
                                0,
                            )
                        };
                        let back = grant.start.max(self.now) + ROUND_TRIP;
                        under_way.push(Reverse((back, grant.lease.0, page, attempts + 1)));
                        continue;
                    }
                    Decision::Wait(wait) => {
                        let length = wait.at.since(self.now);
                        self.longest_wait = self.longest_wait.max(length);
                        wake = wait.at.max(self.now + Duration::from_micros(1));
                    }
                }
            }
            let due = again
                .peek()
                .map(|Reverse(next)| next.0)
                .filter(|at| *at > self.now);
            let back = under_way.peek().map(|Reverse(next)| next.0);
            let next = [Some(wake), due, back]
                .into_iter()
                .flatten()
                .min()
                .expect("something happens");
            self.now = self.now.max(next);
            assert!(
                self.now.since(self.began) < Duration::from_hours(24),
                "it ends"
            );
            while let Some(&Reverse((at, lease, page, attempts))) = under_way.peek() {
                if at > self.now {
                    break;
                }
                under_way.pop();
                if let Some(at) = self.answer(lease, Tried { page, attempts }) {
                    again.push(Reverse((at, page, attempts)));
                }
            }
        }
        self
    }

    /// When the page is to be tried again, if it is.
    fn answer(&mut self, lease: u64, tried: Tried) -> Option<Timestamp> {
        let page = self.pages[tried.page];
        let report = page.report(&format!("https://a.example/{}", tried.page));
        let lease = politely_core::gate::LeaseId(lease);
        let told = (self.host).report(self.now, lease, &report, &self.config, &mut self.rng);
        if report.signal == Signal::Ok {
            if page == Page::Good {
                self.served += 1;
                self.good_after = self.now.since(self.began);
            }
            return None;
        }
        self.blamed += usize::from(!told.url_fault);
        let own = Duration::from_secs(1) * (1 << (tried.attempts - 1).min(10));
        let wait = report.retry_after.unwrap_or_default().max(own);
        (tried.attempts < ATTEMPTS_MAX).then(|| self.now + wait)
    }
}

fn pages(count: usize, bad: impl Fn(usize) -> Option<Page>) -> Vec<Page> {
    (0..count).map(|i| bad(i).unwrap_or(Page::Good)).collect()
}

/// The pace of good pages beside `pages`, as a share of the pace alone.
fn pace(pages: &[Page], config: &Config, seed: u64) -> (f64, Crawl) {
    let alone = vec![Page::Good; pages.len()];
    let alone = Crawl::of(alone, config.clone(), seed).run().good_after;
    let crawl = Crawl::of(pages.to_vec(), config.clone(), seed).run();
    (alone.as_secs_f64() / crawl.good_after.as_secs_f64(), crawl)
}

const BAD: [Page; 15] = [
    Page::Status(429, 0),
    Page::Status(429, 2),
    Page::Status(503, 2),
    Page::Status(403, 2),
    Page::Status(500, 0),
    Page::Status(502, 0),
    Page::Status(503, 0),
    Page::Status(504, 0),
    Page::Status(404, 7_200),
    Page::Status(410, 7_200),
    Page::Status(301, 7_200),
    Page::Status(403, 0),
    Page::Reset,
    Page::ShortBody,
    Page::BrokenCoding,
];

#[test]
fn print_paces() {
    for config in [
        Config::crawler(),
        Config::api(),
        Config::api().with_law("aimd".parse().unwrap()),
        Config::fixed(5.0, 1.0),
    ] {
        for bad in BAD {
            for (name, at) in [("first", 0..1), ("mid", 30..31), ("five", 40..45)] {
                let (share, crawl) =
                    pace(&pages(200, |i| at.contains(&i).then_some(bad)), &config, 1);
                eprintln!(
                    "{:?} {bad:?} {name}: {share:.3} blamed {} longest {:?}",
                    crawl.config.limits.rate_start, crawl.blamed, crawl.longest_wait
                );
            }
            for every in [20, 5, 2] {
                let (share, crawl) =
                    pace(&pages(200, |i| (i % every == 1).then_some(bad)), &config, 1);
                eprintln!(
                    "{:?} {bad:?} every {every}: {share:.3} blamed {} longest {:?}",
                    crawl.config.limits.rate_start, crawl.blamed, crawl.longest_wait
                );
            }
        }
    }
}
