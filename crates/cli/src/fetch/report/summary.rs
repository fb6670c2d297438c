//! The summary at the end of a run, for people or for programs.

use std::collections::HashSet;

use politely_api::wire::StatusCounts;
use serde::Serialize;

use super::eta::Eta;
use super::failures::Group;
use crate::config::{SummaryForm, Wanted};
use crate::exit::Exit;
use crate::fetch::engine::Engine;
use crate::fetch::input::ingest::Ingested;
use crate::fetch::lanes::{Lane, Lanes, Tally};
use crate::log;

/// The number of hosts in the JSON table, the busiest first.
const HOSTS_MAX: usize = 100;
/// The number of groups of failures in the JSON summary, those with the most pages.
const GROUPS_MAX: usize = 100;
/// The number of hosts, and of groups of failures, in the tables for people.
const SHOWN_MAX: usize = 20;
/// The widest reason after which what to do is still aligned, in characters.
const REASON_WIDTH_MAX: usize = 56;
/// The way to try failed pages again, for a user.
const RETRY: &str = "--retry-failed tries the failed ones again";
/// The lowest suggested rate, and the rate from which on none higher is suggested, in requests per
/// second. Both are the job scraper's.
const SUGGESTED_MIN: f64 = 1.0;
const SUGGESTED_MAX: f64 = 10.0;

/// The results that are known only at the end.
pub(crate) struct End {
    pub(crate) seconds: f64,
    /// The number of URLs that are not finished.
    pub(crate) left: u64,
    pub(crate) ingested: Ingested,
    /// URLs fetched and failed by earlier runs with this state folder.
    pub(crate) earlier: (u64, u64),
}

#[derive(Serialize)]
struct Summary {
    pages: u64,
    /// Fetched pages that are as they were at their last visit (304).
    not_modified: u64,
    failed: u64,
    left: u64,
    /// Requests that a limit refused.
    refused: u64,
    /// Requests that a challenge or a block page answered.
    blocked: u64,
    requests: u64,
    refused_share: f64,
    statuses: StatusCounts,
    bytes: u64,
    seconds: f64,
    /// The time that the pages that are left take, or `None` if that is not known.
    eta_s: Option<u64>,
    /// The number of hosts that are closed, if that is why the time is not known.
    hosts_closed: usize,
    /// The failures by host and reason, those with the most pages first.
    failures: Vec<Group>,
    hosts: Vec<HostRow>,
    /// Failures in none of `failures`, and hosts in none of them.
    #[serde(skip)]
    others: (u64, usize),
}

#[derive(Serialize)]
struct HostRow {
    key: String,
    pages: u64,
    failed: u64,
    refused: u64,
    blocked: u64,
    requests: u64,
    statuses: StatusCounts,
    /// The law's rate at the end, in requests per second.
    rate: Option<f64>,
    /// Whole requests per second that an operator may use for `--site-rps` ([`suggested`]).
    suggested_rps: Option<f64>,
}

impl End {
    /// Prints the summary. Returns the exit code.
    pub(crate) fn tell(&self, engine: &Engine) -> Exit {
        let eta = (self.left > 0).then(|| Eta::of(engine)).flatten();
        let summary = self.summary(engine, eta.as_ref());
        let talk = &engine.talk;
        tell_failures(engine, &summary);
        let lost = engine.output.lost();
        if let Some((lines, name)) = &lost {
            talk.say(&format!("error: {name}: {lines} results were not written"));
        }
        match engine.settings.summary {
            SummaryForm::Text if log::is_json() => logged(engine, &summary),
            SummaryForm::Text => text(engine, &summary),
            SummaryForm::Json => json(&summary),
            SummaryForm::None => {}
        }
        if let Some(last) = self.last_line(engine, &summary, eta.as_ref()) {
            talk.say(&last);
        }
        // A reader that closed the pipe is not a failure.
        if engine.is_closed() && !engine.is_state_lost() {
            return Exit::AllFetched;
        }
        let cut = self.ingested.cut
            || engine.is_stopping()
            || engine.is_state_lost()
            || self.left > 0
            || lost.is_some();
        if summary.failed == 0 && self.earlier.1 == 0 && !cut {
            Exit::AllFetched
        } else {
            Exit::SomeFailed
        }
    }

    /// Returns what is left and how to go on, if there is something to say.
    fn last_line(&self, engine: &Engine, summary: &Summary, eta: Option<&Eta>) -> Option<String> {
        if engine.is_closed() {
            return None;
        }
        let mut said = Vec::new();
        if engine.is_stopping() || self.left > 0 {
            let interrupted = if engine.is_stopping() {
                "interrupted, "
            } else {
                ""
            };
            let eta = eta.map_or_else(String::new, |eta| format!(", eta {eta}"));
            let how_on = match (self.left, &engine.settings.state) {
                (0, _) => "",
                (_, Some(_)) => "; the same command continues",
                (_, None) => "; only a run with --state can be continued",
            };
            said.push(format!("{interrupted}{} left{eta}{how_on}", self.left));
        } else if let Some(nothing) = self.nothing_done(engine, summary) {
            return Some(nothing);
        }
        let failed = summary.failed + self.earlier.1;
        if failed > 0 && engine.settings.state.is_some() {
            said.push(format!("{failed} failed; {RETRY}"));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Returns why a run did nothing, if all of its pages were finished before.
    fn nothing_done(&self, engine: &Engine, summary: &Summary) -> Option<String> {
        let (fetched, failed) = self.earlier;
        let is_idle = summary.pages + summary.failed == 0 && !self.ingested.cut;
        match (fetched + failed, &engine.settings.again.wanted) {
            _ if !is_idle => None,
            (0, Wanted::All { since: Some(_) }) => {
                Some("nothing to fetch again: no page is older than --since".to_owned())
            }
            (0, Wanted::Failed(failed)) => Some(if failed.is_all() {
                "nothing to try again: no page has failed".to_owned()
            } else {
                "nothing to try again: no page has failed for this reason".to_owned()
            }),
            (0, _) => None,
            (pages, _) => {
                let retry = match failed {
                    0 => String::new(),
                    _ => format!("; {RETRY}"),
                };
                Some(format!(
                    "all {pages} pages are done: {fetched} fetched and {failed} failed before; --again fetches them again{retry}"
                ))
            }
        }
    }

    fn summary(&self, engine: &Engine, eta: Option<&Eta>) -> Summary {
        let shared = engine.lock();
        let lanes = shared.lanes.all();
        let sum = shared.lanes.sum();
        let mut busiest: Vec<&Lane> = lanes.iter().collect();
        busiest.sort_by(|a, b| {
            b.tally
                .requests
                .cmp(&a.tally.requests)
                .then_with(|| a.name().cmp(b.name()))
        });
        busiest.truncate(HOSTS_MAX);
        let (mut failures, mut unlisted) = engine.failures.told(left(&shared.lanes));
        let troubled: HashSet<&str> = failures.iter().map(|group| &*group.host).collect();
        let well = (lanes.iter()).filter(|lane| !troubled.contains(lane.name()));
        let well = well.count();
        let rest = failures.split_off(failures.len().min(GROUPS_MAX));
        unlisted += rest.iter().map(|group| group.pages).sum::<u64>();
        let hosts = busiest
            .into_iter()
            .map(|lane| host_row(engine, lane))
            .collect();
        Summary {
            pages: sum.pages,
            not_modified: sum.not_modified,
            failed: sum.failed + self.ingested.malformed,
            left: self.left,
            refused: sum.refused,
            blocked: sum.blocked,
            requests: sum.requests,
            refused_share: share(&sum),
            statuses: sum.statuses,
            bytes: sum.bytes,
            seconds: self.seconds,
            eta_s: eta.and_then(Eta::seconds),
            hosts_closed: eta.map_or(0, Eta::hosts_closed),
            failures,
            hosts,
            others: (unlisted, well),
        }
    }
}

/// Returns the pages of hosts that stay for a later run.
fn left(lanes: &Lanes) -> Vec<Group> {
    let mut left = Vec::new();
    let mut from = 0;
    while let Some((id, why)) = lanes.set_aside(from) {
        let lane = lanes.lane(id);
        left.push(Group::left(lane.name(), lane.pages_waiting() as u64, why));
        from = id + 1;
    }
    left
}

/// Prints the failures by host and reason.
fn tell_failures(engine: &Engine, summary: &Summary) {
    let talk = &engine.talk;
    let shown = &summary.failures[..summary.failures.len().min(SHOWN_MAX)];
    if shown.is_empty() {
        return;
    }
    let widest = |width: &dyn Fn(&Group) -> usize| shown.iter().map(width).max().unwrap_or(0);
    let name_width = widest(&|group| group.name().chars().count()).clamp(4, REASON_WIDTH_MAX);
    let reason_width = widest(&|group| group.reason.chars().count()).clamp(6, REASON_WIDTH_MAX);
    let row = |pages: &str, name: &str, reason: &str, to_do: &str| {
        talk.say(&format!(
            "{pages:<12}  {name:<name_width$}  {reason:<reason_width$}  {to_do}"
        ));
    };
    row("failed pages", "host", "reason", "what to do");
    for group in shown {
        let left = if group.is_left { " left" } else { "" };
        let pages = format!("{}{left}", group.pages);
        row(&pages, group.name(), &group.reason, group.to_do);
    }
    let (unlisted, well) = summary.others;
    let hidden = (summary.failures.iter().skip(SHOWN_MAX)).map(|group| group.pages);
    let hidden = hidden.sum::<u64>() + unlisted;
    match (hidden, well) {
        (0, 0) => {}
        (0, well) => talk.say(&format!("and {well} hosts without trouble")),
        (hidden, well) => talk.say(&format!(
            "and {hidden} more failed pages, and {well} hosts without trouble"
        )),
    }
}

fn text(engine: &Engine, summary: &Summary) {
    let talk = &engine.talk;
    if summary.hosts.len() > 1 {
        talk.say(&format!(
            "{:<32} {:>8} {:>7} {:>8} {:>8} {:>8}",
            "host", "pages", "failed", "refused", "blocked", "rate/s"
        ));
        for host in summary.hosts.iter().take(SHOWN_MAX) {
            let rate = host
                .rate
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"));
            let HostRow {
                key,
                pages,
                failed,
                refused,
                blocked,
                ..
            } = host;
            talk.say(&format!(
                "{key:<32} {pages:>8} {failed:>7} {refused:>8} {blocked:>8} {rate:>8}"
            ));
        }
    }
    let Summary {
        pages,
        not_modified,
        failed,
        refused,
        blocked,
        requests,
        seconds,
        refused_share,
        ..
    } = summary;
    let statuses: Vec<String> = (summary.statuses.iter())
        .map(|(status, answers)| format!("{status}: {answers}"))
        .collect();
    if !statuses.is_empty() {
        talk.say(&format!("answers by status: {}", statuses.join(", ")));
    }
    let unmodified = match not_modified {
        0 => String::new(),
        pages => format!(" ({pages} not modified)"),
    };
    talk.say(&format!(
        "{pages} fetched{unmodified}, {failed} failed, {requests} requests of which {refused} refused ({:.1} %) and {blocked} blocked in {seconds:.1} s",
        refused_share * 100.0
    ));
}

fn host_row(engine: &Engine, lane: &Lane) -> HostRow {
    let Tally {
        pages,
        failed,
        refused,
        blocked,
        requests,
        ref statuses,
        ..
    } = lane.tally;
    let rate = lane
        .keys
        .first()
        .and_then(|keys| engine.limits.rate(&keys[0]));
    let rate = rate.filter(|rate| rate.is_finite());
    let rate = engine.limits.operator_rps(lane).or(rate);
    let suggested_rps = rate.map(|rate| suggested(rate, refused + blocked, failed));
    HostRow {
        key: lane.name().to_owned(),
        pages,
        failed,
        refused,
        blocked,
        requests,
        statuses: statuses.clone(),
        rate,
        suggested_rps,
    }
}

/// Returns the suggested rate after a run at `rate`: one less after refusals and block pages, the
/// same after other failures, and else one more, up to ten.
fn suggested(rate: f64, refused: u64, failed: u64) -> f64 {
    let rate = rate.round().max(SUGGESTED_MIN);
    if refused > 0 {
        (rate - 1.0).max(SUGGESTED_MIN)
    } else if failed > 0 || rate >= SUGGESTED_MAX {
        rate
    } else {
        rate + 1.0
    }
}

fn share(sum: &Tally) -> f64 {
    if sum.requests == 0 {
        0.0
    } else {
        sum.refused as f64 / sum.requests as f64
    }
}

/// Logs the summary as one JSON line: the numbers are fields beside the message.
fn logged(engine: &Engine, summary: &Summary) {
    let Ok(mut fields) = serde_json::to_value(summary) else {
        return;
    };
    fields["message"] = "summary".into();
    let line = log::json_line("INFO", &fields);
    engine.talk.say_as_it_is(&line);
}

fn json(summary: &Summary) {
    use std::io::Write as _;
    if let Ok(mut line) = serde_json::to_vec(summary) {
        line.push(b'\n');
        // A reader that closed the pipe is not an error.
        let _ = std::io::stdout().lock().write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggested_rate_follows_how_the_run_went() {
        let table = [
            (4.0, 0, 0, 5.0),
            (9.6, 0, 0, 10.0),
            (10.0, 0, 0, 10.0),
            (25.0, 0, 0, 25.0),
            (4.0, 0, 3, 4.0),
            (4.0, 2, 3, 3.0),
            (25.0, 1, 0, 24.0),
            (0.2, 1, 0, 1.0),
        ];
        for (rate, refused, failed, expected) in table {
            let said = suggested(rate, refused, failed);
            assert!(
                (said - expected).abs() < 1e-9,
                "{rate} {refused} {failed}: {said}"
            );
        }
    }
}
