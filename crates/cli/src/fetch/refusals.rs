//! Answers that may be refusals that nobody listed: which pages are kept, and what a user is told.

use politely::core::host::{Directions, Doubt};
use politely::core::signal::{Alike, Report, Signal};
use url::Url;

use super::engine::Engine;
use super::lanes::LaneId;
use super::lanes::doubt::{Kept, Look};
use super::lanes::pending::{Pending, Purpose};
use super::lanes::sample::Sample;
use super::last::{Last, came_back};
use super::report::output::Row;
use super::retry::is_served;
use super::transport::answer::Came;

/// The number of quarantines after which a host that shows block pages is blocked: two block pages
/// came behind a hold.
const QUARANTINES_BLOCKED: u8 = 3;

/// Returns what the answer to a request looks like beside others of its host, and its report with
/// what its page and its lane know.
pub(super) fn compare(
    engine: &Engine,
    lane: LaneId,
    pending: &Pending,
    url: &Url,
    came: &Came,
    report: Report,
) -> (Look, Report) {
    // The processes of a fleet have different pages, and could not agree on a proof. A page that
    // must not be requested twice cannot wait for one.
    let is_compared = !engine.limits.is_fleet() && pending.may_repeat();
    let (is_page, is_proof) = match pending.purpose {
        // Its text says nothing about those of pages.
        Purpose::Page if pending.page.sitemap().is_some() => (false, false),
        Purpose::Page => (true, false),
        Purpose::Proof => (false, true),
        Purpose::Robots(_) => (false, false),
    };
    let sample = match came {
        Came::Answer(answer)
            if is_compared
                && (is_page || is_proof)
                && is_served(&engine.policy, &report, Purpose::Page) =>
        {
            Sample::of(answer, url, report.signal)
        }
        _ => None,
    };
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let can_check = is_proof || is_page && lanes.lane(lane).keeps_refused();
    let look = sample.map_or_else(Look::default, |sample| lanes.look(lane, sample, is_proof));
    let report = Report {
        alike: if is_compared {
            look.alike()
        } else {
            Alike::Status
        },
        can_check,
        failed_before: pending.attempt.failures.own > 0,
        ..report
    };
    (look, report)
}

/// Returns whether the page was refused for the first time, and its Retry-After holds its host.
///
/// A cut of the rate is no reason to try the page early: the rate may still be at the limit, and
/// the host refuse the page a second time although nothing is wrong with it.
pub(super) fn blames_host(
    engine: &Engine,
    pending: &Pending,
    report: &Report,
    directions: &Directions,
) -> bool {
    let is_held = || directions.hold_until > engine.limits.now();
    let is_first = pending.refused <= 1 && pending.attempt.failures.is_empty();
    is_first && report.retry_after.is_some() && is_held()
}

/// Sets the host of `lane` aside if it refused for so long.
pub(super) fn block_if_refused(
    engine: &Engine,
    lane: LaneId,
    report: &Report,
    directions: &Directions,
) {
    if let Some(why) = blocked(report, directions) {
        let mut shared = engine.lock();
        shared.lanes.block(lane, why, engine.limits.now());
    }
}

/// Returns why the host is given up, if it refused for so long.
fn blocked(report: &Report, directions: &Directions) -> Option<String> {
    let status = report.status.unwrap_or_default();
    match (report.signal, directions.quarantines) {
        (Signal::Blocked, QUARANTINES_BLOCKED..) => {
            Some(format!("blocked by the host: {status} with a block page"))
        }
        _ if directions.refuses_all() => Some(format!(
            "blocked by the host: {status} for every page, also for one that it served before"
        )),
        _ => None,
    }
}

/// Says that the host may refuse everything, or that it does no longer.
pub(super) fn say_doubt(engine: &Engine, url: &Url, report: &Report, directions: &Directions) {
    let host = url.host_str().unwrap_or_default();
    let status = report.status.unwrap_or_default();
    let words = match directions.doubt {
        Doubt::Suspected if report.odd().is_some() && directions.quarantines == 1 => {
            format!(
                "{host} answers {status} to several pages in a row: a page that it served before will tell whether it refuses everything"
            )
        }
        Doubt::Limited if report.signal == Signal::Ok => {
            format!("{host} refused because of a limit: its pages are requested again")
        }
        _ if directions.event && report.signal == Signal::Blocked => {
            format!("{host} shows a block page: it is left alone for a while")
        }
        _ => return,
    };
    engine.talk.say(&words);
}

/// Keeps a page whose answer may be a refusal, until later answers tell.
pub(super) fn keep(
    engine: &Engine,
    lane: LaneId,
    mut pending: Box<Pending>,
    last: &Last<'_>,
    alike: u32,
    error: Option<String>,
    onward: Option<(LaneId, Url)>,
) {
    // A refusal through one proxy is not evaded through another.
    pending.through = pending.through.only();
    let kept = Kept {
        alike,
        bytes: last.report.bytes,
        latency_ms: last.report.latency.as_millis() as u64,
        saved: last.saved().filter(|_| error.is_none()),
        error,
        onward,
        pending,
    };
    let mut shared = engine.lock();
    came_back(
        &mut shared.lanes,
        lane,
        engine.limits.now(),
        Some(last),
        Some(kept),
    );
}

/// Ends a page that was kept, with its answer.
pub(super) fn finish_kept(engine: &Engine, lane: LaneId, mut page: Kept) {
    if page.error.is_none()
        && let Err(why) = engine.add_found(&mut page.pending)
    {
        engine.crawl_failed(&why);
        let mut shared = engine.lock();
        let now = engine.limits.now();
        return shared.lanes.put_back(lane, page.pending, now, now);
    }
    let name = {
        let mut shared = engine.lock();
        shared.lanes.over(lane, page.error.is_some());
        shared.lanes.lane(lane).name().to_owned()
    };
    let row = Row {
        bytes: page.bytes,
        latency_ms: page.latency_ms,
        saved: page.saved.clone(),
        error: page.error.as_deref(),
        ..page.pending.row(&name, "")
    };
    engine.write(&page.pending, row);
}
