//! Reports, in the format of the coordinator's API.

use politely_api::wire::{Meaning, Told, ToldQuota};
use politely_core::budget::UnitCosts;
use politely_core::signal::Report;

/// Returns amounts of units by their names.
pub(super) fn amounts(costs: &UnitCosts) -> impl Iterator<Item = (String, u64)> {
    costs
        .iter()
        .map(|(name, amount)| (name.to_string(), amount))
}

/// Returns the report of `permit`. With `body_coming`, the slot stays taken.
pub(super) fn outcome_of(permit: &str, report: &Report, body_coming: bool) -> Told {
    let ms = |span: Option<std::time::Duration>| span.map(|span| span.as_millis() as u64);
    // Rounded up, so that no request leaves early.
    let retry_after = report
        .retry_after
        .map(|span| span.as_nanos().div_ceil(1_000_000) as u64);
    Told {
        permit: permit.to_owned(),
        status: report.status,
        error: report.failure.map(Into::into),
        latency_ms: report.latency.as_secs_f64() * 1e3,
        bytes: report.bytes,
        used: amounts(&report.used).collect(),
        body_coming,
        attempt: 1,
        resource: report.resource.map(|resource| resource.to_string()),
        meaning: Some(Meaning {
            signal: report.signal.into(),
            retry_after_ms: retry_after,
            quotas: (report.quotas.iter())
                .map(|quota| ToldQuota {
                    unit: quota.unit.into(),
                    limit: quota.limit,
                    window_ms: ms(quota.window),
                    remaining: quota.remaining,
                    reset_ms: ms(quota.reset),
                    of_account: quota.of_account,
                })
                .collect(),
            scope: report.scope.as_ref().map(Into::into),
            may_retry: report.may_retry,
        }),
        ..Told::default()
    }
}

#[cfg(test)]
mod tests {
    use politely_core::signal::Signal;

    use super::*;

    #[test]
    fn the_servers_word_on_retries_is_reported() {
        for may_retry in [None, Some(false), Some(true)] {
            let report = Report {
                may_retry,
                ..Report::of(Signal::Overloaded)
            };
            let meaning = outcome_of("p", &report, false).meaning;
            assert_eq!(meaning.unwrap().may_retry, may_retry);
        }
    }
}
