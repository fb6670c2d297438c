//! The life of one request: it is sent and reported to its limits. Then its page is finished,
//! retried later, or continued at the target of a redirect.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use politely::Plan;
use politely::core::gate::HoldReason;
use politely::core::host::Directions;
use politely::core::key::Key;
use politely::core::signal::{Report, Resource, Signal, WallClock, classify};
use politely::policy::AnswerRule;
use politely::redirect::follow;
use url::Url;

use super::crawl::note::Validators;
use super::depart::depart;
use super::engine::Engine;
use super::lanes::pending::{Pending, Purpose};
use super::lanes::{Job, LaneId};
use super::last::{Last, came_back};
use super::limits::Leave;
use super::outgoing::{body, headers, prepared};
use super::own_machine;
use super::refusals::{blames_host, block_if_refused, compare, keep, say_doubt};
use super::report::last_answer::LastAnswer;
use super::report::output::Row;
use super::report::page_fields::RowOfPage;
use super::retry::{after_failure, is_served, status_words};
use super::robots_answer::robots_over;
use super::site;
use super::transport::answer::{Answer, Came};
use super::transport::call::Call;
use super::transport::content::Content;
use super::transport::egresses::NoEgress;
use super::unsaved::{may_leave_again, not_kept, not_saved, unsent};

/// The maximum number of redirects of one robots.txt (RFC 9309, 2.3.1.2).
const ROBOTS_REDIRECTS_MAX: usize = 5;

/// The next step for a request that came back.
pub(super) enum After {
    /// The request is retried, but not before this delay.
    Again(Duration),
    /// A redirect: the request continues at this URL.
    Onward(Url),
    /// The request is finished. With an error, it failed.
    Over(Option<String>),
}

/// Sends `job` and handles its result.
pub(crate) async fn send(engine: &Engine, job: Job<Leave>) {
    let Job {
        lane,
        mut pending,
        permit: mut leave,
    } = job;
    let (url, content) = match prepared(engine, &pending) {
        Ok(prepared) => prepared,
        Err(why) => {
            drop(leave);
            return finish(engine, lane, &pending, None, Some(why));
        }
    };
    let (method, may_repeat) = (pending.method(), pending.may_repeat());
    let headers = headers(engine, &mut pending, &url);
    let call = Call {
        method: &method,
        url: &url,
        headers: &headers,
        content: &content,
        may_repeat,
        body: body(engine, &pending),
        is_once: pending.begins_again(),
        needs_start: leave.needs_body(),
        reads_links: site::follows(engine, &pending),
    };
    let (mut came, took) = match depart(engine, &mut leave, &mut pending, call).await {
        Ok(ended) => ended,
        Err(NoEgress::Before(not_before)) => {
            drop(leave);
            return unsent(engine, lane, pending, not_before);
        }
        Err(NoEgress::Hopeless(why)) => {
            drop(leave);
            return finish(engine, lane, &pending, None, Some(&why));
        }
    };
    if own_machine::is_at_fault(engine, lane, &came) && (may_repeat || came.is_unsent()) {
        drop(leave);
        return unsent(engine, lane, pending, engine.limits.now());
    }
    let (content, exchange) = came.take_bodies();
    let plan = leave.plan.take();
    let (report, answer) = report(&came, took, &url, plan.as_ref());
    let ruled = leave.show(&came, &pending.attempt);
    let (look, mut report) = compare(engine, lane, &pending, &url, &came, report);
    pending.status = report.status;
    note_answer(engine, &mut pending, &url, &came);
    let about = hear_scope(engine, lane, leave.egress, &url, &mut report);
    let directions = tell(engine, leave, &report);
    report.signal = directions.meaning(&report);
    if let Some(ruled) = ruled {
        // A rule of the coordinator may give the answer another meaning.
        report.signal = ruled.await.unwrap_or(report.signal);
    }
    follow_rule(engine, plan.as_ref(), &report, answer, &about);
    if let Some(why) = not_saved(engine, &came, &url, exchange) {
        return not_kept(engine, lane, pending, &why);
    }
    if report.signal.is_refusal() {
        pending.refused += 1;
    }
    pending.blames_host = blames_host(engine, &pending, &report, &directions);
    say_doubt(engine, &url, &report, &directions);
    let learned = directions.event || report.signal != Signal::Ok || pending.attempts % 8 == 1;
    let policy = plan.as_ref().map(|plan| plan.retry_policy(&engine.policy));
    let last = Last {
        report: &report,
        came: &came,
        url: &url,
        policy: policy.as_deref().unwrap_or(&engine.policy),
        learned,
        served: is_served(&engine.policy, &report, pending.purpose),
        first_try: pending.is_untried_page(),
        look,
        doubt: directions.doubt,
        page_url: (pending.is_plain_page() && came.is_whole())
            .then_some((&url, pending.is_at_lasting_url())),
    };
    block_if_refused(engine, lane, &report, &directions);
    if pending.purpose == Purpose::Proof {
        let mut shared = engine.lock();
        let now = engine.limits.now();
        return came_back(&mut shared.lanes, lane, now, Some(&last), None);
    }
    let next = next_step(engine, lane, &mut pending, &last, &directions);
    match (next, pending.purpose) {
        (After::Over(error), Purpose::Page | Purpose::Proof) => {
            over(engine, lane, pending, &last, content, error);
        }
        (After::Over(error), Purpose::Robots(of)) => {
            robots_over(engine, lane, of, &last, error.as_deref());
        }
        (After::Again(delay), _) => {
            pending.attempt = pending.attempt.clone().following(&report, delay);
            again(engine, lane, pending, delay, &last);
        }
        (After::Onward(to), _) => onward(engine, lane, pending, to, &last),
    }
}

/// Ends a page with its last answer, or keeps it if that is in doubt. The pages that it names are
/// in the crawl before it counts as done.
fn over(
    engine: &Engine,
    lane: LaneId,
    mut pending: Box<Pending>,
    last: &Last<'_>,
    content: Option<Content>,
    error: Option<String>,
) {
    let content = content.filter(|_| error.is_none());
    let error = error.or(site::read(
        engine,
        &mut pending,
        last.url,
        last.came,
        content,
    ));
    if let Some(alike) = last.in_doubt() {
        return keep(engine, lane, pending, last, alike, error, None);
    }
    if let Err(why) = engine.add_found(&mut pending) {
        engine.crawl_failed(&why);
        return not_kept(engine, lane, pending, &why);
    }
    finish(engine, lane, &pending, Some(last), error.as_deref());
}

/// Records in a page what its row and a later run need of an answer.
fn note_answer(engine: &Engine, pending: &mut Pending, url: &Url, came: &Came) {
    pending.validators = validators(engine, pending, url, came);
    pending.answer = last_answer(engine, pending, url, came);
}

/// Returns the validators of an answer to a page, if a later run can use them.
fn validators(engine: &Engine, pending: &Pending, url: &Url, came: &Came) -> Option<Validators> {
    match came {
        Came::Answer(answer)
            if answer.status == StatusCode::OK
                && answer.spoiled.is_none()
                && pending.is_plain_get()
                && engine.crawl.kept().is_some() =>
        {
            Validators::of(url, &answer.headers)
        }
        _ => None,
    }
}

/// Returns the fields of the result line of a page about its last answer.
fn last_answer(
    engine: &Engine,
    pending: &Pending,
    url: &Url,
    came: &Came,
) -> Option<Box<LastAnswer>> {
    let Came::Answer(answer) = came else {
        return None;
    };
    let chosen = &engine.settings.row_headers;
    let is_page = pending.purpose == Purpose::Page;
    is_page.then(|| Box::new(LastAnswer::of(answer, url, &pending.redirects, chosen)))
}

/// Returns the next step for `pending`.
fn next_step(
    engine: &Engine,
    lane: LaneId,
    pending: &mut Pending,
    last: &Last<'_>,
    directions: &Directions,
) -> After {
    if pending.is_unmodified() && last.report.signal == Signal::Ok {
        return After::Over(None);
    }
    if let Came::Answer(answer) = last.came
        && is_accepted(engine, pending, answer)
        && may_be_page(answer, last.report.signal)
    {
        return After::Over(answer.spoiled.clone());
    }
    if last.report.signal == Signal::Ok {
        let wait_max = engine.policy.retry_after_max;
        let hops_max = engine.settings.bounds.redirects_max;
        after(pending, last, hops_max, wait_max)
    } else {
        after_failure(engine, lane, pending, last, directions)
    }
}

/// Reports the outcome to the limits of the request, and records what they learned.
fn tell(engine: &Engine, leave: Leave, report: &Report) -> Directions {
    let keys = leave.keys().to_vec();
    let directions = leave.report(report);
    engine.write_spent(&keys);
    if let Some(key) = keys.first()
        && (directions.event || directions.hold_until > engine.limits.now())
    {
        engine.write_learned(key);
    }
    directions
}

/// Holds what an answer is about, if that is a part of the host or an account. Returns the keys.
fn hear_scope(
    engine: &Engine,
    lane: LaneId,
    egress: usize,
    url: &Url,
    report: &mut Report,
) -> Vec<Key> {
    let names_a_part = report.scope.is_some();
    if !names_a_part && report.signal != Signal::RateLimited {
        return Vec::new();
    }
    let mut shared = engine.lock();
    let lane = shared.lanes.lane_mut(lane);
    let Some(keys) = lane.keys.get(egress).or(lane.keys.first()) else {
        return Vec::new();
    };
    let held = engine.limits.hear_scope(url, &keys[0], report);
    lane.by_page |= names_a_part && !held.is_empty();
    drop(shared);
    for key in &held {
        engine.write_learned(key);
    }
    held
}

/// Applies the hold of a rule about answers, and says that an answer fits it.
fn follow_rule(
    engine: &Engine,
    plan: Option<&Plan>,
    report: &Report,
    answer: Option<&AnswerRule>,
    about: &[Key],
) {
    let (Some(plan), Some(answer)) = (plan, answer) else {
        return;
    };
    let key = plan.key();
    if let Some(hold) = answer.hold {
        for key in plan.held_by(about) {
            engine.limits.hold(key, hold, HoldReason::Operator);
        }
    }
    if answer.notify {
        let status = report.status.unwrap_or_default();
        let (line, signal) = (answer.line, answer.signal.as_str());
        let text = format!("{key}: {status} fits the rule of line {line}: {signal}");
        engine.talk.say(&text);
    }
}

/// Returns the meaning of an answer, and the rule about answers that gave it.
fn report<'a>(
    came: &Came,
    took: Duration,
    url: &Url,
    plan: Option<&'a Plan>,
) -> (Report, Option<&'a AnswerRule>) {
    let outcome = came.outcome();
    let (latency, bytes) = match came {
        Came::Answer(answer) => (answer.latency, answer.bytes),
        Came::Failed(_) => (took, 0),
    };
    let clock = WallClock::from(SystemTime::now());
    let mut report = classify(&outcome, clock, latency, bytes);
    report.resource = Some(Resource::of(url.as_str()));
    let answer_rule = plan.and_then(|plan| plan.judge(&outcome, clock, &mut report));
    (report, answer_rule)
}

/// Decides what follows an answered request. A redirect whose Retry-After is longer than `wait_max`
/// is not followed.
fn after(pending: &Pending, last: &Last<'_>, hops_max: usize, wait_max: Duration) -> After {
    let Came::Answer(answer) = last.came else {
        return After::Over(None);
    };
    let page = pending.purpose == Purpose::Page;
    let hops_max = if page { hops_max } else { ROBOTS_REDIRECTS_MAX };
    match follow(
        answer.status,
        &answer.headers,
        last.url,
        pending.hops,
        hops_max,
    ) {
        Some(Ok(to)) => match last.report.target_after {
            Some(wait) if wait > wait_max => {
                let seconds = wait.as_secs();
                After::Over(Some(format!(
                    "redirect to {to} after {seconds} s, longer than is waited for"
                )))
            }
            _ => After::Onward(to),
        },
        Some(Err(why)) => After::Over(Some(why.to_string())),
        None if page || !answer.status.is_success() => After::Over(Some(status_words(answer))),
        None => After::Over(answer.spoiled.clone()),
    }
}

/// Returns whether an answer may be a page. A good status may hide a refusal, and a bad one does
/// not have to be one.
fn may_be_page(answer: &Answer, signal: Signal) -> bool {
    match signal {
        Signal::Ok => true,
        Signal::Blocked => false,
        signal => !signal.is_refusal() && !answer.status.is_success(),
    }
}

/// Returns whether an answer to a page counts as fetched.
fn is_accepted(engine: &Engine, pending: &Pending, answer: &Answer) -> bool {
    pending.purpose == Purpose::Page && engine.settings.bounds.accepted.contains(answer.status)
}

/// Ends a page.
pub(super) fn finish(
    engine: &Engine,
    lane: LaneId,
    pending: &Pending,
    last: Option<&Last<'_>>,
    error: Option<&str>,
) {
    let name: Key = {
        let mut shared = engine.lock();
        let lanes = &mut shared.lanes;
        let now = engine.limits.now();
        if last.is_none() && pending.purpose == Purpose::Page && pending.is_untried() {
            lanes.tried(lane);
        }
        came_back(lanes, lane, now, last, None);
        lanes.over(lane, error.is_some());
        if error.is_none() && pending.is_unmodified() {
            lanes.not_modified(lane);
        }
        if let Some(most) = engine.settings.bounds.bytes_max
            && let bytes = lanes.sum().bytes
            && bytes >= most
            && !engine.is_stopping()
        {
            engine
                .talk
                .say(&format!("--max-bytes: the run ends after {bytes} bytes"));
            engine.stop();
        }
        lanes.lane(lane).keys[0][0].clone()
    };
    let report = last.map(|last| last.report);
    let saved = match (&engine.settings.save, error) {
        (Some(dir), None) if pending.is_unmodified() => pending.saved_before(dir),
        (Some(_), None) => last.and_then(Last::saved),
        _ => None,
    };
    let row = Row {
        url: pending.page.given(),
        key: name.as_str(),
        status: pending.status,
        attempts: pending.attempts,
        refused: pending.refused,
        bytes: report.map_or(0, |report| report.bytes),
        wait_ms: pending.waited_us / 1000,
        latency_ms: report.map_or(0, |report| report.latency.as_millis() as u64),
        saved,
        error,
        page: RowOfPage::of(&pending.page),
        answer: pending.answer.as_deref(),
        ..Row::default()
    };
    engine.write(pending, row);
}

/// Puts the request back into its lane, or begins again at the page's own URL.
fn again(
    engine: &Engine,
    lane: LaneId,
    mut pending: Box<Pending>,
    delay: Duration,
    last: &Last<'_>,
) {
    may_leave_again(engine, &pending);
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let now = engine.limits.now();
    let back = if pending.begins_again() {
        pending.restart();
        pending.home
    } else {
        lane
    };
    lanes.put_back(back, pending, now + delay, now);
    came_back(lanes, lane, now, Some(last), None);
}

fn onward(engine: &Engine, from: LaneId, mut pending: Box<Pending>, to: Url, last: &Last<'_>) {
    let keys = match engine.limits.keys(&to) {
        Ok(keys) => keys,
        Err(why) => {
            let error = format!(
                "redirect to {}: {why}",
                super::input::lines::shown(to.as_str().as_bytes())
            );
            return match pending.purpose {
                Purpose::Page | Purpose::Proof => {
                    finish(engine, from, &pending, Some(last), Some(&error));
                }
                Purpose::Robots(of) => robots_over(engine, from, of, last, Some(&error)),
            };
        }
    };
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let (lane, new) = lanes.lane_of(&to, || keys);
    if new {
        engine.introduce(lanes.lane_mut(lane));
        engine.set_hosts(engine.hosts() + 1);
    }
    if let Some(alike) = last.in_doubt() {
        drop(shared);
        return keep(engine, from, pending, last, alike, None, Some((lane, to)));
    }
    pending.go_on(to, last.report.status);
    let now = engine.limits.now();
    // A redirect's Retry-After is about its target (RFC 9110, 10.2.3).
    match last.report.target_after {
        Some(wait) => lanes.put_back(lane, pending, now + wait, now),
        None => lanes.put_redirected(lane, pending, now),
    }
    came_back(lanes, from, now, Some(last), None);
}
