//! The progress display: bars on a terminal, a plain line every few seconds elsewhere.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::eta::Eta;
use crate::fetch::engine::Engine;
use crate::fetch::lanes::{Lane, Tally};

/// The number of hosts shown on a terminal.
const HOSTS: usize = 8;
const REDRAW: Duration = Duration::from_millis(250);
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// The number of redraws between two estimates. An estimate looks at every host.
const ETA_DRAWS: u32 = 8;

/// Shows the run until it is aborted. `earlier` counts URLs fetched and failed by earlier runs.
pub(crate) async fn show(engine: Arc<Engine>, earlier: (u64, u64)) {
    if std::io::stderr().is_terminal() && !crate::log::is_json() {
        bars(&engine, earlier).await;
    } else {
        lines(&engine).await;
    }
}

async fn lines(engine: &Engine) {
    let mut before = 0;
    loop {
        tokio::time::sleep(PLAIN_EVERY).await;
        let (sum, waiting, in_flight) = totals(engine);
        let eta = Eta::of(engine);
        let done = sum.pages + sum.failed;
        let per_s = (done - before) as f64 / PLAIN_EVERY.as_secs_f64();
        let stands = done == before && in_flight == 0 && waiting > 0;
        before = done;
        let Tally {
            pages,
            failed,
            refused,
            blocked,
            ..
        } = sum;
        let mut line = format!(
            "{pages} fetched, {failed} failed, {refused} refused, {blocked} blocked, {waiting} waiting, {in_flight} in flight, {per_s:.1}/s"
        );
        if let Some(eta) = eta {
            let _ = write!(line, ", eta {eta}");
        }
        if stands && let Some(host) = busiest(engine).first() {
            let words: Vec<&str> = host.split_whitespace().collect();
            let _ = write!(line, "; most for {}", words.join(" "));
        }
        engine.talk.say(&line);
    }
}

fn write_rate(progress: &ProgressState, out: &mut dyn Write) {
    // Writing to a bar cannot fail.
    let _ = write!(out, "{:.1}/s", progress.per_sec());
}

async fn bars(engine: &Engine, earlier: (u64, u64)) {
    let bars = engine.talk.bars();
    let overall = bars.add(ProgressBar::new(0));
    // The templates are constants, so a wrong one would show in the first run.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {rate}  {msg}") {
        overall.set_style(style.with_key("rate", write_rate));
    }
    let hosts: Vec<ProgressBar> = (0..HOSTS)
        .map(|_| {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        })
        .collect();
    let mut eta = String::new();
    let mut draws = 0_u32;
    loop {
        if draws.is_multiple_of(ETA_DRAWS) {
            eta = Eta::of(engine).map_or_else(String::new, |eta| format!("eta {eta}, "));
        }
        draws = draws.wrapping_add(1);
        let (sum, waiting, in_flight) = totals(engine);
        let done = earlier.0 + earlier.1 + sum.pages + sum.failed;
        overall.set_length(done + waiting + in_flight);
        overall.set_position(done);
        overall.set_message(format!(
            "{eta}{} failed, {} refused, {} blocked, {in_flight} in flight",
            sum.failed, sum.refused, sum.blocked
        ));
        let rows = busiest(engine);
        for (i, bar) in hosts.iter().enumerate() {
            bar.set_message(rows.get(i).cloned().unwrap_or_default());
        }
        tokio::time::sleep(REDRAW).await;
    }
}

fn totals(engine: &Engine) -> (Tally, u64, u64) {
    let shared = engine.lock();
    (
        shared.lanes.sum(),
        shared.lanes.waiting(),
        shared.lanes.in_flight(),
    )
}

/// Returns a line for each of the lanes with the most to do: what is left, its rate, why it waits.
fn busiest(engine: &Engine) -> Vec<String> {
    let shared = engine.lock();
    let busy = |lane: &&Lane| lane.pages_waiting() > 0 || lane.in_flight > 0;
    let mut lanes: Vec<&Lane> = shared.lanes.all().iter().filter(busy).collect();
    if lanes.len() > HOSTS {
        lanes.select_nth_unstable_by_key(HOSTS, |lane| std::cmp::Reverse(lane.pages_waiting()));
        lanes.truncate(HOSTS);
    }
    lanes.sort_by(|a, b| {
        b.pages_waiting()
            .cmp(&a.pages_waiting())
            .then_with(|| a.name().cmp(b.name()))
    });
    lanes
        .into_iter()
        .map(|lane| {
            let name = engine
                .names
                .get(lane.name())
                .map_or(lane.name(), String::as_str);
            let mut line = format!("  {name:<30} {:>7} left", lane.pages_waiting());
            let key = lane.keys.first().map(|keys| &keys[0]);
            if let Some(rate) = key.and_then(|key| engine.limits.rate(key)) {
                let _ = write!(line, "  {rate:>6.2}/s");
            }
            if let Some(since) = lane.outage.down_since() {
                let down = engine.limits.now().since(since).as_secs();
                let _ = write!(line, "  no answer for {down} s");
            }
            if let Some(why) = key.and_then(|key| engine.limits.explain(key)) {
                let _ = write!(line, "  {why}");
            }
            line
        })
        .collect()
}
