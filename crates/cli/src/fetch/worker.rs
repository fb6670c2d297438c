//! One request, from leave to consequence: sent, reported to its limits, and then finished, sent again later
//! or followed to where it was redirected.

use std::time::{Duration, SystemTime};

use politely::core::retry::{Attempt, GiveUpReason, Next, Policy};
use politely::core::signal::{Failure, Outcome, Report, Signal, WallClock, classify};
use politely::core::{Timestamp, key::Key};
use politely::redirect::{HOPS_MAX, follow};
use url::Url;

use super::client::{Answer, Body, Came};
use super::engine::Engine;
use super::frontier::{Job, LaneId};
use super::limits::Leave;
use super::output::Row;
use super::pending::{Pending, Purpose};
use super::robots::{self, Cached, Rules, Standing};
use super::save::place;
use crate::config::{RetryName, Settings};

/// Redirects of one robots.txt (RFC 9309, 2.3.1.2).
const ROBOTS_REDIRECTS_MAX: usize = 5;
/// A robots.txt is read this far (RFC 9309, 2.5: at least 500 KiB).
const ROBOTS_MAX: usize = 500 * 1024;

/// How often a request goes again.
pub(crate) fn policy(settings: &Settings) -> Policy {
    let mut policy = match settings.retry {
        RetryName::Crawler => Policy::crawler(),
        RetryName::JobScraper => Policy::job_scraper(),
    };
    if let Some(retries) = settings.retries {
        policy.attempts_max = retries + 1;
    }
    policy
}

/// What becomes of a request that came back.
enum After {
    /// It goes again, not before so long.
    Again(Duration),
    /// It goes on at this URL.
    Onward(Url),
    /// It is over; with an error, it failed.
    Over(Option<String>),
}

/// Sends `job` and sees to what follows.
pub(crate) async fn send(engine: &Engine, job: Job<Leave>) {
    let Job {
        lane,
        mut pending,
        permit: mut leave,
    } = job;
    let page = pending.purpose == Purpose::Page;
    let Some(url) = where_to(engine, &mut pending) else {
        drop(leave);
        let error = Some("the spool could not be read");
        return finish(engine, lane, &pending, None, error);
    };
    let body = match (&engine.settings.save, page) {
        (_, false) => Body::Keep(ROBOTS_MAX),
        (Some(dir), true) => Body::Save(dir),
        (None, true) => Body::Count,
    };
    leave.sent();
    let sending = (engine.clients).get(leave.egress, engine.hosts(), &url, body);
    let (came, took) = leave.during(sending).await;
    let report = report(&came, took);
    pending.status = report.status;
    let directions = leave.report(&report);
    if report.signal == Signal::RateLimited {
        pending.refused += 1;
    }
    if directions.event && report.signal == Signal::Blocked {
        let host = url.host_str().unwrap_or_default();
        engine.talk.say(&format!(
            "{host} shows a block page: it is left alone for a while"
        ));
    }
    let learned = directions.event || report.signal != Signal::Ok || pending.attempts % 8 == 1;
    let after = after(engine, lane, &pending, &came, &report, &url);
    let last = Last {
        report: &report,
        came: &came,
        url: &url,
        learned,
    };
    match (after, pending.purpose) {
        (After::Over(error), Purpose::Page) => {
            finish(engine, lane, &pending, Some(&last), error.as_deref());
        }
        (After::Over(error), Purpose::Robots(of)) => {
            robots_over(engine, lane, of, &last, error.as_deref());
        }
        (After::Again(delay), _) => {
            pending.attempt = pending.attempt.clone().following(&report, delay);
            again(engine, lane, lane, pending, delay, &last);
        }
        (After::Onward(to), _) => onward(engine, lane, pending, to, &last),
    }
}

/// The URL to ask for; the page's own is read from the spool once.
fn where_to(engine: &Engine, pending: &mut Pending) -> Option<Url> {
    if let Some(hop) = &pending.hop {
        return Some(hop.clone());
    }
    if pending.given.is_none() {
        pending.given = engine.given(pending.offset);
    }
    Url::parse(pending.given.as_deref()?).ok()
}

/// What the last attempt brought.
struct Last<'a> {
    report: &'a Report,
    came: &'a Came,
    url: &'a Url,
    /// Worth keeping.
    learned: bool,
}

fn report(came: &Came, took: Duration) -> Report {
    match came {
        Came::Answer(answer) => {
            let outcome = Outcome::Answered {
                status: answer.status,
                headers: &answer.headers,
                body_start: &answer.start,
            };
            classify(
                &outcome,
                WallClock::from(SystemTime::now()),
                answer.latency,
                answer.bytes,
            )
        }
        Came::Failed(failure, _) => classify(
            &Outcome::Failed(*failure),
            WallClock::from(SystemTime::now()),
            took,
            0,
        ),
    }
}

fn after(
    engine: &Engine,
    lane: LaneId,
    pending: &Pending,
    came: &Came,
    report: &Report,
    url: &Url,
) -> After {
    let page = pending.purpose == Purpose::Page;
    if report.signal == Signal::Ok
        && let Came::Answer(answer) = came
    {
        let hops_max = if page { HOPS_MAX } else { ROBOTS_REDIRECTS_MAX };
        return match follow(answer.status, &answer.headers, url, pending.hops, hops_max) {
            Some(Ok(to)) => After::Onward(to),
            Some(Err(why)) => After::Over(Some(why.to_string())),
            None => After::Over(fault(answer)),
        };
    }
    // A robots.txt answered with an error has a rhythm of its own; refusals and failures are like a page's.
    if !page && report.signal != Signal::RateLimited && matches!(came, Came::Answer(_)) {
        return After::Over(Some(words(came)));
    }
    let decided = {
        let mut shared = engine.lock();
        let now = engine.limits.now();
        let mut accounts = shared.frontier.accounts(lane);
        // The job scraper has no retry budget.
        let accounts = match engine.settings.retry {
            RetryName::Crawler => &mut accounts[..],
            RetryName::JobScraper => &mut [],
        };
        engine
            .policy
            .decide(&pending.attempt, report, accounts, &mut engine.rng(), now)
    };
    match decided {
        Next::Retry { after, .. } => After::Again(after),
        // The hold that goes with it sets the whole lane aside, this request with it.
        Next::GiveUp(GiveUpReason::Parked(_)) => After::Again(Duration::ZERO),
        Next::GiveUp(GiveUpReason::Permanent(_) | GiveUpReason::Status(_)) => {
            After::Over(Some(words(came)))
        }
        Next::GiveUp(why) => After::Over(Some(format!("{} ({why})", words(came)))),
        Next::Done => After::Over(None),
    }
}

/// What is wrong with an answer that nobody will send again.
fn fault(answer: &Answer) -> Option<String> {
    if answer.status.is_success() {
        answer.spoiled.clone()
    } else {
        Some(status_words(answer))
    }
}

fn status_words(answer: &Answer) -> String {
    let reason = answer.status.canonical_reason().unwrap_or("");
    format!("{} {reason}", answer.status.as_u16())
        .trim_end()
        .to_owned()
}

fn words(came: &Came) -> String {
    match came {
        Came::Answer(answer) => status_words(answer),
        Came::Failed(failure, words) => format!("{}: {words}", failure_word(*failure)),
    }
}

fn failure_word(failure: Failure) -> &'static str {
    match failure {
        Failure::NoSuchHost => "no such host",
        Failure::Resolver => "name not resolved",
        Failure::Connect => "no connection",
        Failure::Tls => "TLS",
        Failure::Timeout => "time-out",
        Failure::Reset => "connection broken",
        Failure::Malformed => "malformed answer",
    }
}

/// A page is over.
fn finish(
    engine: &Engine,
    lane: LaneId,
    pending: &Pending,
    last: Option<&Last<'_>>,
    error: Option<&str>,
) {
    let name: Key = {
        let mut shared = engine.lock();
        let frontier = &mut shared.frontier;
        let now = engine.limits.now();
        came_back(frontier, lane, now, last);
        frontier.over(lane, error.is_some());
        frontier.lane(lane).keys[0][0].clone()
    };
    let report = last.map(|last| last.report);
    let read_now;
    let given = if let Some(given) = &pending.given {
        given
    } else {
        read_now = engine.given(pending.offset).unwrap_or_default();
        &read_now
    };
    let saved = match (&engine.settings.save, last, error) {
        (Some(dir), Some(last), None) => Some(place(dir, last.url)),
        _ => None,
    };
    let row = Row {
        url: given,
        key: name.as_str(),
        status: pending.status,
        attempts: pending.attempts,
        refused: pending.refused,
        bytes: report.map_or(0, |report| report.bytes),
        wait_ms: pending.waited_us / 1000,
        latency_ms: report.map_or(0, |report| report.latency.as_millis() as u64),
        saved,
        error,
    };
    engine.write(pending.offset, &row);
}

/// The request goes again on lane `to`.
fn again(
    engine: &Engine,
    from: LaneId,
    to: LaneId,
    pending: Box<Pending>,
    delay: Duration,
    last: &Last<'_>,
) {
    let mut shared = engine.lock();
    let frontier = &mut shared.frontier;
    let now = engine.limits.now();
    let not_before = if delay.is_zero() {
        Timestamp::ZERO
    } else {
        now + delay
    };
    frontier.put_back(to, pending, not_before, now);
    came_back(frontier, from, now, Some(last));
}

fn onward(engine: &Engine, from: LaneId, mut pending: Box<Pending>, to: Url, last: &Last<'_>) {
    let keys = match engine.limits.keys(&to) {
        Ok(keys) => keys,
        Err(why) => {
            let error = format!(
                "redirect to {}: {why}",
                super::input::shown(to.as_str().as_bytes())
            );
            return finish(engine, from, &pending, Some(last), Some(&error));
        }
    };
    pending.hops += 1;
    pending.attempt = Attempt::first(http::Method::GET);
    let (lane, new) = engine.lock().frontier.lane_of(&to, || keys);
    if new {
        engine.introduce(lane);
        engine.set_hosts(engine.hosts() + 1);
    }
    pending.hop = Some(to);
    again(engine, from, lane, pending, Duration::ZERO, last);
}

/// The robots.txt of lane `of`, last asked for on lane `lane`, has an answer or will not get one.
fn robots_over(engine: &Engine, lane: LaneId, of: LaneId, last: &Last<'_>, error: Option<&str>) {
    let now = engine.limits.now();
    let answer = match last.came {
        // Rules that cannot be decoded are not known: the origin is closed, as after a 5xx.
        Came::Answer(answer) if answer.spoiled.is_some() && answer.status.is_success() => None,
        Came::Answer(answer) => Some((answer.status.as_u16(), &answer.start)),
        Came::Failed(..) => None,
    };
    let rules = match answer {
        // Too many redirects, or one that leads nowhere, is "unavailable": there are no rules.
        Some((300..=399, _)) => Rules::of(Some(404), b"", &engine.settings.robots_token),
        Some((status, body)) => Rules::of(Some(status), body, &engine.settings.robots_token),
        None => None,
    };
    if rules.is_some() {
        let origin = engine.lock().frontier.lane(of).origin.to_string();
        let body = answer
            .filter(|(status, _)| (200..=299).contains(status))
            .map(|(_, body)| body.to_vec());
        engine.keep_robots(
            &origin,
            Cached {
                fetched_unix_s: robots::unix_now(),
                body,
            },
        );
    }
    let mut shared = engine.lock();
    let frontier = &mut shared.frontier;
    let standing = std::mem::replace(&mut frontier.lane_mut(of).robots, Standing::Unknown);
    let standing = if let Some(rules) = rules {
        Standing::Known {
            rules: rules.into(),
            until: now + robots::TTL,
        }
    } else {
        // An answer may change; a host that could not be reached in all its attempts is given up.
        let is_failure = matches!(last.came, Came::Failed(..));
        standing.unavailable(error.unwrap_or("no answer"), is_failure, now)
    };
    frontier.robots_answered(of, standing, now);
    came_back(frontier, lane, now, Some(last));
}

fn came_back(
    frontier: &mut super::frontier::Frontier,
    lane: LaneId,
    now: Timestamp,
    last: Option<&Last<'_>>,
) {
    if let Some(last) = last {
        frontier.answered(
            lane,
            last.report.bytes,
            last.report.signal == Signal::RateLimited,
        );
        if last.report.signal == Signal::Ok {
            for account in frontier.accounts(lane) {
                account.budget.deposit(account.rule, now);
            }
        }
        if last.learned {
            frontier.learned(lane);
        }
    }
    frontier.came_back(lane, now);
}

/// Finds out the address of a lane's host; where that fails its key is the host, and the fetch will say why.
pub(crate) async fn resolve(engine: &Engine, lane: LaneId) {
    let origin = engine.lock().frontier.lane(lane).origin.to_string();
    let Ok(url) = Url::parse(&origin) else { return };
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    let lookup = tokio::time::timeout(
        engine.settings.timeout,
        tokio::net::lookup_host((host, port)),
    )
    .await;
    // The smallest, so that every run and every host of one machine agrees.
    let address = lookup
        .ok()
        .and_then(Result::ok)
        .and_then(|found| found.map(|found| found.ip()).min());
    let key = address.map(Key::address).or_else(|| Key::of_url(&url).ok());
    let keys = key
        .into_iter()
        .map(|key| engine.limits.with_shared(key, &url))
        .collect();
    {
        let mut shared = engine.lock();
        let now = engine.limits.now();
        shared.frontier.resolved(lane, keys, now);
    }
    engine.introduce(lane);
    engine.look_again();
}
