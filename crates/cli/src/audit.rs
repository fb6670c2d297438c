//! `politely audit`: prints what the workers of a coordinator did.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use politely_api::client::Client;
use politely_api::wire::{UsageBy, UsagePage, UsageQuery};

use crate::args::{AuditArgs, AuditBy};
use crate::exit::{Exit, Wrong, print};
use crate::fault::{failed, reach};
use crate::log::say;

pub(crate) fn run(args: &AuditArgs) -> Result<Exit, Wrong> {
    let (client, runtime) = reach(&args.to)?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = since_1970.unwrap_or_default().as_secs();
    let query = UsageQuery {
        by: match args.by {
            AuditBy::Worker => UsageBy::Worker,
            AuditBy::Key => UsageBy::Key,
            AuditBy::Account => UsageBy::Account,
        },
        step: args.step,
        from: Some(now_s.saturating_sub((args.last - 1) * 3_600)),
        to: None,
        name: args.name.clone(),
    };
    let call = |client: &Client| client.usage(&query);
    let page = runtime.block_on(client.at_each(call));
    let wrong = |why| failed(&args.to.coordinator, why);
    let page = page.map_err(wrong)?;
    let text = if args.json {
        lines(&page)
    } else {
        table(&page)
    };
    if print(text.as_bytes())? && page.cut {
        say("there are more rows; use a longer --step, a smaller --last, or --name");
    }
    if !page.incomplete.is_empty() {
        say(&format!(
            "incomplete hours (unix): {}; a coordinator was killed in them or is cut off, or this \
             one does not know them whole",
            spans(&page.incomplete)
        ));
    }
    Ok(Exit::AllFetched)
}

/// Returns the beginnings of hours as text, such as `3600 to 10800, 18000`.
fn spans(hours: &[u64]) -> String {
    let spans = hours.chunk_by(|hour, next| hour + 3_600 == *next);
    let spans = spans.map(|span| match span {
        [first, .., last] => format!("{first} to {last}"),
        span => span.iter().map(u64::to_string).collect(),
    });
    spans.collect::<Vec<_>>().join(", ")
}

fn lines(page: &UsagePage) -> String {
    let rows = page.rows.iter();
    rows.map(|row| serde_json::to_string(row).unwrap_or_default() + "\n")
        .collect()
}

fn table(page: &UsagePage) -> String {
    let mut text = format!(
        "{:>12} {:>10} {:>10} {:>9} {:>9} {:>10} {:>14} {:>8}  name, answers by status\n",
        "from (unix)", "granted", "ok", "refused", "blocked", "waited s", "bytes", "expired"
    );
    for row in &page.rows {
        let counts = &row.counts;
        // A name from the network may contain control characters.
        let name: String = (row.name.chars())
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        let mut statuses = String::new();
        for (status, answers) in counts.statuses.iter() {
            let _ = write!(statuses, "  {status}: {answers}");
        }
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "{:>12} {:>10} {:>10} {:>9} {:>9} {:>10.1} {:>14} {:>8}  {name}{statuses}",
            row.at_s,
            counts.granted,
            counts.ok,
            counts.rate_limited,
            counts.blocked,
            counts.waited_ms as f64 / 1e3,
            counts.bytes,
            counts.expired,
        );
    }
    text
}
