//! Assertions of the promises (docs/reference/promises.md), by the hosts' log and the engine's
//! cells.

use politely::cells::Engine;
use politely::cells::postgres::Postgres;
use politely::cells::redis::Redis;
use politely::cells::zookeeper::ZooKeeper;
use politely::core::config::Config;
use politely::core::control::LawConfig;
use politely::{AcquireRequest, Arrival, Explanation, Key, Limiter};
use politely_target::{Entry, arrivals_above};
use std::sync::Arc;

use super::crew::Crew;
use crate::fleet::verdict::Numbers;

impl Crew {
    /// Returns the requests of one host, ordered by arrival.
    pub(super) fn entries(&self, name: &str) -> Vec<Entry> {
        let mut entries = self.target.entries(name);
        entries.sort_by_key(|entry| entry.arrived_us);
        entries
    }

    /// Asserts P1: every window of any length saw at most burst + rate x length + 1 requests, and
    /// `again` more. An engine that lost writes may have granted `again` permits twice (P7).
    pub(super) fn demand_pace(&self, numbers: Numbers, again: f64) {
        let most = numbers.burst + 1.0 + again;
        let mut worst = 0.0_f64;
        for host in self.target.hosts() {
            let entries = self.entries(&host.name);
            let above = arrivals_above(entries.iter().map(Entry::arrived), numbers.rate);
            worst = worst.max(above);
            let story = || self.story();
            assert!(
                above <= most,
                "{}: {above:.2} above the rate, {most:.2} allowed{}",
                host.name,
                story()
            );
        }
        eprintln!("P1: at most {worst:.2} above the rate, {most:.2} allowed");
    }

    /// Asserts P2: at most `most` requests were in flight at each host.
    pub(super) fn demand_in_flight(&self, most: u64) {
        let rows = self.target.judge().hosts;
        let worst = rows
            .iter()
            .max_by_key(|row| row.in_flight_max)
            .expect("a host");
        let story = || self.story();
        assert!(
            worst.in_flight_max <= most,
            "{} had {} in flight{}",
            worst.host,
            worst.in_flight_max,
            story()
        );
        eprintln!(
            "P2: at most {} in flight, {most} allowed",
            worst.in_flight_max
        );
    }

    /// Asserts that every page was served.
    pub(super) fn demand_all_pages(&self) {
        for (row, host) in self.target.judge().hosts.iter().zip(self.target.hosts()) {
            assert_eq!(
                row.pages,
                u64::from(host.pages),
                "{}{}",
                row.host,
                self.story()
            );
        }
    }

    /// Asserts that no slot was charged twice and none is lost: the cell counts exactly one report
    /// for each request that arrived.
    pub(super) fn demand_books(&self, url: &str, numbers: Numbers) {
        for (row, known) in self
            .target
            .judge()
            .hosts
            .iter()
            .zip(self.look(url, &config(numbers)))
        {
            let books = known.tally;
            let story = || {
                format!(
                    "{}: {books:?}, {} came{}",
                    row.host,
                    row.arrivals,
                    self.story()
                )
            };
            assert_eq!(
                books.granted,
                books.reported + books.cancelled + books.expired + books.live,
                "{}",
                story()
            );
            assert_eq!((books.expired, books.live), (0, 0), "{}", story());
            assert_eq!(books.reported, row.arrivals, "{}", story());
        }
    }

    /// Asserts P7 for an engine that lost no write: the cell counts a grant for each request that
    /// arrived, and the books balance.
    pub(super) fn demand_grants(&self, url: &str, numbers: Numbers) {
        let rows = self.target.judge().hosts;
        for (row, known) in rows.iter().zip(self.look(url, &config(numbers))) {
            let books = known.tally;
            let used = books.reported + books.expired + books.live;
            let is_sound = books.granted == used + books.cancelled && used >= row.arrivals;
            let (host, arrivals) = (&row.host, row.arrivals);
            assert!(
                is_sound,
                "{host}: {books:?}, {arrivals} came{}",
                self.story()
            );
        }
    }

    /// Returns the explanation of each host by the engine's cells.
    pub(super) fn look(&self, url: &str, config: &Config) -> Vec<Explanation> {
        let hosts = self.target.hosts().iter();
        hosts
            .map(|host| self.look_at(url, config, &host.url()))
            .collect()
    }

    /// Returns the explanation of one URL's host by the cell in the engine at `url`.
    pub(super) fn look_at(&self, url: &str, config: &Config, page: &str) -> Explanation {
        let _inside = self.runtime.enter();
        let engine: Arc<dyn Engine> = match url.split_once(':').expect("a URL").0 {
            "zookeeper" => Arc::new(ZooKeeper::connect(url).expect("the URL is fine")),
            "postgres" => Arc::new(Postgres::connect(url).expect("the URL is fine")),
            _ => Arc::new(Redis::connect(url).expect("the URL is fine")),
        };
        let limiter = Limiter::builder().config(config.clone()).store(engine);
        let limiter = limiter.build().expect("the configuration is sound");
        let key = Key::of_url(&page.parse().expect("a URL")).expect("a key");
        self.runtime.block_on(async {
            // The request reads the cell, whether it is granted or not. A permit is returned at
            // once.
            drop(
                limiter
                    .request(&key, AcquireRequest::default(), Arrival::LAST)
                    .await,
            );
        });
        limiter.explain(&key).expect("it was asked for")
    }
}

/// Returns the configuration that the processes have.
pub(super) fn config(numbers: Numbers) -> Config {
    let mut config = Config::api().with_law(LawConfig::Fixed);
    config.limits.rate_max = numbers.rate;
    config.limits.rate_start = numbers.rate;
    config.limits.burst = numbers.burst;
    config.limits.in_flight = numbers.in_flight as u32;
    config
}
