//! `politely explain`: says what holds a host back, and what was learned about it.

use std::time::Duration;

use politely_api::client::Client;
use politely_api::wire::{KeyDetail, SetBy};

use crate::args::ExplainArgs;
use crate::config::{Knobs, Settings};
use crate::exit::{Exit, Wrong};
use crate::fault::{failed, reach};
use crate::fetch;

/// The number of decisions that are shown, the newest first.
const DECISIONS_MAX: usize = 20;

pub(crate) fn run(args: &ExplainArgs) -> Result<Exit, Wrong> {
    let host = args.host.as_str();
    let lines = if let Some(dir) = &args.state {
        let knobs = Knobs {
            profile: args.profile,
            ..Knobs::default()
        };
        let settings = Settings::checked(knobs).map_err(Wrong)?;
        let known = fetch::explain::explain(dir, host, &settings)?;
        let dir = dir.display();
        known.ok_or_else(|| Wrong(format!("{host}: not known in the state folder \"{dir}\"")))?
    } else {
        let (client, runtime) = reach(&args.to)?;
        let call = |client: &Client| client.key(host);
        let detail = runtime.block_on(client.at_each(call));
        of_coordinator(&detail.map_err(|why| failed(&args.to.coordinator, why))?)
    };
    for line in lines {
        println!("{line}");
    }
    Ok(Exit::AllFetched)
}

/// Returns the lines about a key of a coordinator.
fn of_coordinator(detail: &KeyDetail) -> Vec<String> {
    let row = &detail.row;
    let mut lines = vec![format!("{}: {}", row.key, row.why)];
    let number = |value: Option<f64>| value.map_or("no bound".to_owned(), |it| format!("{it:.2}"));
    let in_force = &detail.in_force;
    lines.push(format!(
        "rate: {}/s ({}), at most {} in flight ({}), law {}",
        number(in_force.rate.value),
        source(in_force.rate.set_by),
        row.in_flight_max,
        source(in_force.in_flight.set_by),
        in_force.law.value
    ));
    if let Some(ceiling) = detail.learned.ceiling {
        let (cuts, refused) = (detail.learned.cuts, row.refused);
        lines.push(format!(
            "learned limit: {ceiling:.2}/s after {cuts} cuts; {refused} requests were refused"
        ));
    }
    if let Some((median, high)) = row.latency_p50_ms.zip(row.latency_p95_ms) {
        lines.push(format!(
            "latency: median {median:.0} ms, 95 % within {high:.0} ms"
        ));
    }
    for left in &detail.budgets {
        lines.push(format!("budget {}: {} left", left.limit, left.remaining));
    }
    for decision in detail.decisions.iter().take(DECISIONS_MAX) {
        let ago = Duration::from_millis(decision.ago_ms).as_secs();
        lines.push(format!("{ago} s ago: {}", decision.text));
    }
    lines
}

const fn source(set_by: SetBy) -> &'static str {
    match set_by {
        SetBy::Default | SetBy::Profile => "configured",
        SetBy::Operator => "set by an operator",
        SetBy::Learned => "learned",
        SetBy::Robots => "from robots.txt",
        SetBy::Header => "from a header",
    }
}
