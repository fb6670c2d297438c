//! The judge: what the hosts saw of a client.
//!
//! A request counts from when its head has been read until its answer is handed to the socket. The
//! number in flight here is therefore never more than at the client. All counters are streaming.
//! Memory is bounded by the pages (one bit each) and the arrivals of the last five seconds (16
//! bytes each).

mod counters;
mod holds;
mod rates;

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub(crate) use counters::{Counters, PAGES_MAX};
pub use rates::arrivals_above;

use crate::model::best_time;
use crate::town::HostSpec;

/// The row of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name in the town.
    pub host: String,
    /// Its address and port.
    pub addr: SocketAddr,
    /// Its limit in words.
    pub limit: String,
    /// All requests, `/robots.txt` included.
    pub arrivals: u64,
    /// Requests that the limit accepted and the host answered.
    pub accepted: u64,
    /// Requests that the limit refused.
    pub refused: u64,
    /// Requests that got the block page.
    pub blocked: u64,
    /// Requests that failed at random or in an outage.
    pub failed: u64,
    /// Accepted requests whose client left before the answer.
    pub left: u64,
    /// Most requests in flight at one time, refused and queued ones included.
    pub in_flight_max: u64,
    /// Smallest time between two arrivals.
    pub gap_min_ms: Option<f64>,
    /// Requests sent although a Retry-After had been announced more than a grace ago and had not
    /// passed.
    pub during_hold: u64,
    /// Most requests in any second, per second.
    pub peak_1s: f64,
    /// Most requests in any five seconds, per second.
    pub peak_5s: f64,
    /// Requests that were accepted in the last ten seconds in which any was, per second. `None` for
    /// fewer than two.
    #[serde(default)]
    pub accepted_10s: Option<f64>,
    /// Requests per second that the limit allows for long. `None` if it bounds no rate.
    #[serde(default)]
    pub limit_per_s: Option<f64>,
    /// Different pages served.
    pub pages: u64,
    /// Pages that were served again.
    pub duplicates: u64,
    /// Arrival of the first accepted request, in seconds since the target's start.
    pub first_accepted_s: Option<f64>,
    /// Departure of the last accepted request, in seconds since the target's start.
    pub last_accepted_s: Option<f64>,
    /// From the first arrival to the departure of the last accepted request.
    pub took_s: Option<f64>,
    /// The shortest time in which this host could have served these pages, from the first arrival
    /// on, each in the mean service time. Random failures and blocks are left out.
    pub best_s: Option<f64>,
}

impl HostReport {
    pub(crate) fn new(spec: &HostSpec, addr: SocketAddr, counters: &Counters) -> Self {
        let since_first = |at: politely_core::Timestamp| {
            at.since(counters.first_arrival.unwrap_or(at)).as_secs_f64()
        };
        let best = counters
            .first_arrival
            .zip(spec.limit.build().ok())
            .map(|(from, fresh)| {
                best_time(&fresh, from, counters.pages(), spec.service.mean()).as_secs_f64()
            });
        Self {
            host: spec.name.clone(),
            addr,
            limit: spec.limit.to_string(),
            arrivals: counters.arrivals,
            accepted: counters.accepted,
            refused: counters.refused,
            blocked: counters.blocked,
            failed: counters.failed,
            left: counters.left,
            in_flight_max: counters.in_flight_max,
            gap_min_ms: counters.gap_min.map(|gap| gap.as_secs_f64() * 1e3),
            during_hold: counters.during_hold,
            peak_1s: counters.peak_1s.rate(),
            peak_5s: counters.peak_5s.rate(),
            accepted_10s: counters.last_10s.rate(),
            limit_per_s: spec.limit.per_s(),
            pages: counters.pages(),
            duplicates: counters.duplicates(),
            first_accepted_s: counters
                .first_accepted
                .map(politely_core::Timestamp::as_secs_f64),
            last_accepted_s: counters
                .last_accepted
                .map(politely_core::Timestamp::as_secs_f64),
            took_s: counters.last_accepted.map(since_first),
            best_s: best,
        }
    }

    /// Returns the share of refused requests, 0 to 1.
    pub fn refused_share(&self) -> f64 {
        if self.arrivals == 0 {
            0.0
        } else {
            self.refused as f64 / self.arrivals as f64
        }
    }
}

/// The rows of all hosts. `Display` writes an aligned table, serde the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// In the town's order.
    pub hosts: Vec<HostReport>,
}

impl Report {
    /// Returns the row of the host with this name.
    pub fn host(&self, name: &str) -> Option<&HostReport> {
        self.hosts.iter().find(|host| host.host == name)
    }

    /// Returns the share of refused requests of all hosts, 0 to 1.
    pub fn refused_share(&self) -> f64 {
        let sum = |of: fn(&HostReport) -> u64| self.hosts.iter().map(of).sum::<u64>();
        let arrivals = sum(|host| host.arrivals);
        if arrivals == 0 {
            0.0
        } else {
            sum(|host| host.refused) as f64 / arrivals as f64
        }
    }

    /// Returns the best possible time of the slowest host, in seconds.
    pub fn best_s(&self) -> f64 {
        self.hosts
            .iter()
            .filter_map(|host| host.best_s)
            .fold(0.0, f64::max)
    }

    /// Returns the time of the last host to finish, in seconds.
    pub fn took_s(&self) -> f64 {
        self.hosts
            .iter()
            .filter_map(|host| host.took_s)
            .fold(0.0, f64::max)
    }
}

const HEAD: [&str; 16] = [
    "host",
    "allows",
    "arrived",
    "accepted",
    "refused",
    "blocked",
    "failed",
    "in flight",
    "gap ms",
    "in hold",
    "peak/s",
    "5 s",
    "pages",
    "again",
    "took s",
    "best s",
];

/// The first columns are words, aligned left. The others are numbers, aligned right.
const WORDS: usize = 2;

fn cells(host: &HostReport) -> [String; HEAD.len()] {
    let tenths =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    [
        host.host.clone(),
        host.limit.clone(),
        host.arrivals.to_string(),
        host.accepted.to_string(),
        host.refused.to_string(),
        host.blocked.to_string(),
        host.failed.to_string(),
        host.in_flight_max.to_string(),
        tenths(host.gap_min_ms),
        host.during_hold.to_string(),
        format!("{:.0}", host.peak_1s),
        format!("{:.1}", host.peak_5s),
        host.pages.to_string(),
        host.duplicates.to_string(),
        tenths(host.took_s),
        tenths(host.best_s),
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.hosts.iter().map(cells));
        let widths: [usize; HEAD.len()] = std::array::from_fn(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        });
        for row in &rows {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                if column < WORDS {
                    write!(f, "{cell:width$}  ")?;
                } else if column + 1 < HEAD.len() {
                    write!(f, "{cell:>width$}  ")?;
                } else {
                    writeln!(f, "{cell:>width$}")?;
                }
            }
        }
        let pages: u64 = self.hosts.iter().map(|host| host.pages).sum();
        let arrivals: u64 = self.hosts.iter().map(|host| host.arrivals).sum();
        let (refused, took, best) = (self.refused_share() * 100.0, self.took_s(), self.best_s());
        writeln!(
            f,
            "{pages} pages in {arrivals} requests, {refused:.1} % refused; {took:.1} s, at best {best:.1} s"
        )
    }
}
