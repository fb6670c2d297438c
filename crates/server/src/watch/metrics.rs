//! The text of `/metrics`, in Prometheus' format.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::histogram::{Histograms, Split};
use crate::coordinator::Coordinator;

static RECORDER: OnceLock<Option<(PrometheusHandle, Histograms)>> = OnceLock::new();

/// Installs the metrics recorder of this process. Does nothing if the process has a recorder
/// already.
pub(crate) fn install() {
    RECORDER.get_or_init(|| {
        let histograms = Histograms::default();
        let split = Split {
            exporter: PrometheusBuilder::new().build_recorder(),
            histograms: histograms.clone(),
        };
        let handle = split.exporter.handle();
        ::metrics::set_global_recorder(split).ok()?;
        Some((handle, histograms))
    });
}

/// Returns the text of a scrape.
pub(crate) fn scrape(coordinator: &Coordinator) -> Option<String> {
    let (handle, histograms) = RECORDER.get()?.as_ref()?;
    let limiter = coordinator.limiter();
    limiter.stats().emit();
    coordinator.watch().emit();
    if let Some(commits) = limiter.commits() {
        commits.emit();
        let away = limiter.trouble().is_some();
        ::metrics::gauge!("politely_engine_away").set(f64::from(u8::from(away)));
    }
    if let Some(kept) = coordinator.kept() {
        ::metrics::counter!("politely_state_commits_total").absolute(kept.commits);
        ::metrics::counter!("politely_state_failures_total").absolute(kept.failures);
        ::metrics::counter!("politely_journal_failures_total").absolute(kept.journal_failures);
    }
    ::metrics::counter!("politely_client_keys_refused_total").absolute(coordinator.refused_keys());
    let average_s = limiter.stats().average_wait().as_secs_f64();
    ::metrics::gauge!("politely_wait_seconds_average").set(average_s);
    ::metrics::gauge!("politely_hit_rate").set(coordinator.hit_rate());
    let limited = coordinator.watch().table.limited(limiter);
    ::metrics::gauge!("politely_limited_keys").set(limited as f64);
    ::metrics::gauge!("politely_live_permits").set(coordinator.live() as f64);
    let mut text = handle.render();
    histograms.render(&mut text);
    Some(text)
}
