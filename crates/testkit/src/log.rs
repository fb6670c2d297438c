//! The log of a host, and the facts that tests read from it.
//!
//! Times are microseconds since 1970 by the server's clock. nginx knows only milliseconds, so the
//! gaps and windows of its hosts are rounded by up to 1 ms.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::Deserialize;

pub(super) const SECOND_US: u64 = 1_000_000;

/// One line of a host's log.
#[derive(Deserialize)]
struct Line {
    /// When the answer was complete, in seconds since 1970.
    end: f64,
    /// Seconds from the request's arrival to the end of the answer.
    took: f64,
    path: String,
    status: u16,
    retry_after: String,
}

/// One request, as the server logged it.
#[derive(Clone, Debug, PartialEq)]
struct Request {
    arrived_us: u64,
    ended_us: u64,
    status: u16,
    path: String,
    /// When the Retry-After of this answer ends, if the answer was a refusal.
    hold_until_us: Option<u64>,
}

/// A request that arrived before a Retry-After had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldArrival {
    /// Time since the refusal that began the hold. If it is short, the request was in flight when
    /// the refusal was sent.
    pub since_refusal_us: u64,
    /// Time until the end of the hold.
    pub left_us: u64,
}

/// The facts about one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// Requests that were served, including a 404 for robots.txt.
    pub accepted: usize,
    /// Answers 403, 429 and 503. With these the hosts refuse requests.
    pub refused: usize,
    /// Other errors: the 500s of the noisy host, and 499 if the client closed the connection.
    pub failed: usize,
    /// Number of different pages that were served.
    pub pages: usize,
    /// Arrival and status of every request, in order of arrival.
    pub arrivals: Vec<(u64, u16)>,
    /// Most arrivals within one second, including refused ones.
    pub peak_per_second: usize,
    /// Most requests in flight at the host, including refused ones.
    pub peak_in_flight: usize,
    /// The least time between two arrivals.
    pub smallest_gap_us: Option<u64>,
    /// Arrivals before the end of a Retry-After.
    pub held: Vec<HeldArrival>,
}

impl Truth {
    /// Returns the number of requests, whatever their answers.
    pub fn requests(&self) -> usize {
        self.arrivals.len()
    }

    /// Returns the time from the first arrival to the last.
    pub fn span_us(&self) -> u64 {
        let ends = self.arrivals.first().zip(self.arrivals.last());
        ends.map_or(0, |((first, _), (last, _))| last - first)
    }
}

/// Reads a log. A host that got no request may have no log.
pub(super) fn read(path: &Path) -> Truth {
    let text = fs::read_to_string(path).unwrap_or_default();
    judge(text.lines().map(parse).collect())
}

pub(super) const fn is_refusal(status: u16) -> bool {
    matches!(status, 403 | 429 | 503)
}

fn parse(line: &str) -> Request {
    let line: Line =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("truth line {line}: {error}"));
    let ended_us = (line.end * 1e6).round() as u64;
    let refusal = matches!(line.status, 429 | 503);
    Request {
        arrived_us: ended_us - (line.took * 1e6).round() as u64,
        ended_us,
        status: line.status,
        path: line.path,
        hold_until_us: refusal
            .then(|| hold_until_us(&line.retry_after, ended_us))
            .flatten(),
    }
}

fn hold_until_us(retry_after: &str, ended_us: u64) -> Option<u64> {
    if let Ok(seconds) = retry_after.parse::<u64>() {
        return Some(ended_us + seconds * SECOND_US);
    }
    let date = httpdate::parse_http_date(retry_after).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs() * SECOND_US)
}

fn judge(mut requests: Vec<Request>) -> Truth {
    // Requests may arrive in the same tick. Then a request that was served comes before one that
    // was refused because of it.
    requests.sort_by_key(|request| (request.arrived_us, Reverse(request.ended_us)));
    let count = |is: fn(u16) -> bool| requests.iter().filter(|request| is(request.status)).count();
    let refused = count(is_refusal);
    let accepted = count(|status| matches!(status, 200..=399 | 404));
    let served = |request: &&Request| request.status == 200 && request.path.starts_with("/page/");
    let pages: BTreeSet<&str> = requests
        .iter()
        .filter(served)
        .map(|request| request.path.as_str())
        .collect();
    let times: Vec<u64> = requests.iter().map(|request| request.arrived_us).collect();
    Truth {
        accepted,
        refused,
        failed: requests.len() - accepted - refused,
        pages: pages.len(),
        peak_per_second: most_within(&times, SECOND_US),
        peak_in_flight: peak_in_flight(&requests),
        smallest_gap_us: times.windows(2).map(|pair| pair[1] - pair[0]).min(),
        held: held(&requests),
        arrivals: requests
            .iter()
            .map(|request| (request.arrived_us, request.status))
            .collect(),
    }
}

/// Returns the largest number of `times`, which are ascending, within less than `window`.
fn most_within(times: &[u64], window: u64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, time) in times.iter().enumerate() {
        while time - times[first] >= window {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// Returns the most requests in flight. A request that ended in the tick of an arrival was not in
/// flight then.
fn peak_in_flight(requests: &[Request]) -> usize {
    let mut ends = BinaryHeap::new();
    let at_arrival = requests.iter().map(|request| {
        while ends
            .peek()
            .is_some_and(|Reverse(end)| *end <= request.arrived_us)
        {
            ends.pop();
        }
        ends.push(Reverse(request.ended_us));
        ends.len()
    });
    at_arrival.max().unwrap_or(0)
}

fn held(requests: &[Request]) -> Vec<HeldArrival> {
    let mut held = Vec::new();
    // The refusals, ordered by the time at which they were sent, are merged with the arrivals.
    let mut refusals: Vec<(u64, u64)> = requests
        .iter()
        .filter_map(|request| Some((request.ended_us, request.hold_until_us?)))
        .collect();
    refusals.sort_unstable();
    let mut refusals = refusals.into_iter().peekable();
    let (mut began, mut until) = (0, 0);
    for request in requests {
        while let Some((sent, asked)) = refusals.next_if(|(sent, _)| *sent < request.arrived_us) {
            if sent >= until {
                began = sent;
            }
            until = until.max(asked);
        }
        if request.arrived_us < until {
            held.push(HeldArrival {
                since_refusal_us: request.arrived_us - began,
                left_us: until - request.arrived_us,
            });
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arrived_us: u64, ended_us: u64, status: u16) -> Request {
        Request {
            arrived_us,
            ended_us,
            status,
            path: "/page/1".to_owned(),
            hold_until_us: None,
        }
    }

    #[test]
    fn a_line_gives_the_arrival_and_the_end_of_the_hold() {
        let line = |retry_after: &str| {
            format!(
                r#"{{"end":1700000000.250,"took":0.050,"host":"h","path":"/page/7","status":429,"client":"127.0.0.1","retry_after":"{retry_after}"}}"#
            )
        };
        let seconds = parse(&line("3"));
        assert_eq!(seconds.arrived_us, 1_700_000_000_200_000);
        assert_eq!(seconds.hold_until_us, Some(1_700_000_003_250_000));
        let date = parse(&line("Tue, 14 Nov 2023 22:13:30 GMT"));
        assert_eq!(date.hold_until_us, Some(1_700_000_010_000_000));
        assert_eq!(parse(&line("")).hold_until_us, None);
    }

    #[test]
    fn before_this_a_200_with_retry_after_began_a_hold() {
        // Flask-Limiter sends Retry-After with every answer.
        let line = r#"{"end":1.0,"took":0.0,"host":"h","path":"/","status":200,"client":"c","retry_after":"9"}"#;
        assert_eq!(parse(line).hold_until_us, None);
    }

    #[test]
    fn in_flight_counts_a_refusal_that_took_no_time_but_not_one_who_left_in_the_same_tick() {
        assert_eq!(peak_in_flight(&[]), 0);
        assert_eq!(peak_in_flight(&[request(5, 5, 503)]), 1);
        assert_eq!(
            peak_in_flight(&[
                request(0, 10, 200),
                request(0, 10, 200),
                request(10, 20, 200)
            ]),
            2
        );
        assert_eq!(
            peak_in_flight(&[request(0, 10, 200), request(5, 5, 503), request(7, 9, 200)]),
            2
        );
    }

    #[test]
    fn windows_are_half_open() {
        assert_eq!(most_within(&[0, 400, 999, 1000, 1399], 1000), 4);
        assert_eq!(most_within(&[], 1000), 0);
    }

    #[test]
    fn a_hold_is_dated_from_the_refusal_that_began_it() {
        let refusal = |arrived, until| Request {
            hold_until_us: Some(until),
            ..request(arrived, arrived + 1, 429)
        };
        let held = held(&[
            request(0, 1, 200),
            refusal(10, 100),
            refusal(20, 110),
            request(105, 106, 200),
            request(110, 111, 200),
        ]);
        let seen: Vec<_> = held
            .iter()
            .map(|held| (held.since_refusal_us, held.left_us))
            .collect();
        assert_eq!(seen, [(9, 80), (94, 5)]);
    }
}
