//! `politely explain HOST --state DIR`: what a state folder of `fetch` knows about a host.

use std::path::Path;
use std::time::Duration;

use politely::core::host::{Explanation, Source};
use politely::core::key::Key;

use super::limits::Limits;
use super::robots::unix_now;
use super::state;
use crate::config::Settings;
use crate::exit::Wrong;

/// The number of reasons of failures that are shown, those of the most pages.
const REASONS_MAX: usize = 10;

/// Returns the lines about `host` in the state folder `dir`, or `None` if it knows nothing of it.
/// `settings` are those of its runs.
pub(crate) fn explain(
    dir: &Path,
    host: &str,
    settings: &Settings,
) -> Result<Option<Vec<String>>, Wrong> {
    if !state::is_resumable(dir) {
        let dir = dir.display();
        return Err(Wrong(format!(
            "--state {dir}: no state folder of `politely fetch`"
        )));
    }
    let key = Key::parse(host).map_err(|why| Wrong(format!("{host}: {why}")))?;
    let folder = state::Inspected::open(dir, &key)?;
    let pages = folder.pages.of_host(key.as_str()).map_err(Wrong)?;
    if folder.state.is_none() && pages.origins.is_empty() {
        return Ok(None);
    }
    let mut lines = Vec::new();
    if let Some(state) = &folder.state {
        let limits = Limits::new(settings)?;
        limits.restore(&key, state);
        if let Some(known) = limits.explanation(&key) {
            let now = limits.now();
            lines.push(format!("{key}: {}", known.line(now)));
            lines.extend(learned(&known));
            if let Some(event) = known.event {
                let ago = ago(now.since(event.at));
                lines.push(format!("last event: {event}, {ago}"));
            }
        }
    }
    lines.push(format!(
        "pages: {} fetched, {} failed, {} wait",
        pages.fetched, pages.failed, pages.waiting
    ));
    for (reason, count) in pages.reasons.iter().take(REASONS_MAX) {
        lines.push(format!("  {count} failed: {reason}"));
    }
    for origin in &pages.origins {
        lines.extend(of_origin(&folder, origin));
    }
    Ok(Some(lines))
}

/// Returns the numbers in force of a key and their sources.
fn learned(known: &Explanation) -> Vec<String> {
    let source = |source| match source {
        Source::Configured => "configured",
        Source::Operator => "set by an operator",
        Source::Learned => "learned",
        Source::Robots => "from robots.txt",
    };
    let in_force = &known.in_force;
    let mut lines = Vec::new();
    if in_force.rate.0.is_finite() {
        let (rate, from) = in_force.rate;
        let (slots, slots_from) = in_force.in_flight;
        lines.push(format!(
            "rate: {rate:.2}/s ({}), at most {slots} in flight ({}), law {}",
            source(from),
            source(slots_from),
            in_force.law.0
        ));
    }
    if let Some(ceiling) = known.law.ceiling {
        let cuts = known.law.cuts;
        lines.push(format!(
            "learned limit: {ceiling:.2}/s after {cuts} cuts; {} requests were refused",
            known.refused
        ));
    }
    if let Some((delay, from)) = in_force.crawl_delay {
        let seconds = delay.as_secs_f64();
        lines.push(format!("Crawl-delay: {seconds:.1} s ({})", source(from)));
    }
    if let Some((median, high)) = known.latency {
        lines.push(format!(
            "latency: median {} ms, 95 % within {} ms",
            median.as_millis(),
            high.as_millis()
        ));
    }
    lines
}

/// Returns what the folder knows about an origin.
fn of_origin(folder: &state::Inspected, origin: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Ok(Some(robots)) = folder.store.robots(origin) {
        let read = ago(Duration::from_secs(
            unix_now().saturating_sub(robots.fetched_unix_s),
        ));
        let rules = match &robots.body {
            Some(body) => format!("{} bytes", body.len()),
            None => "there is none".to_owned(),
        };
        lines.push(format!("{origin}/robots.txt: {rules}, read {read}"));
    }
    if folder.store.is_http1(origin).unwrap_or_default() {
        lines.push(format!("{origin}: speaks HTTP/1.1 only"));
    }
    lines
}

fn ago(length: Duration) -> String {
    match length.as_secs() {
        secs @ 0..300 => format!("{secs} s ago"),
        secs @ 300..7_200 => format!("{} min ago", secs / 60),
        secs @ 7_200..172_800 => format!("{} h ago", secs / 3_600),
        secs => format!("{} days ago", secs / 86_400),
    }
}
