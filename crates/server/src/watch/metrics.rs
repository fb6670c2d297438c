//! `/metrics`, in Prometheus' words.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::coordinator::Coordinator;

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Listens to what this process measures. Once per process; a recorder of somebody else's is left alone.
pub(crate) fn install() {
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().ok());
}

/// What there is to scrape now.
pub(crate) fn scrape(coordinator: &Coordinator) -> Option<String> {
    let handle = RECORDER.get()?.as_ref()?;
    let limiter = coordinator.limiter();
    limiter.stats().emit();
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
    let average_s = limiter.stats().average_wait().as_secs_f64();
    ::metrics::gauge!("politely_wait_seconds_average").set(average_s);
    ::metrics::gauge!("politely_hit_rate").set(coordinator.hit_rate());
    let limited = coordinator.watch().table.limited(limiter);
    ::metrics::gauge!("politely_limited_keys").set(limited as f64);
    ::metrics::gauge!("politely_live_permits").set(coordinator.live() as f64);
    handle.run_upkeep();
    Some(handle.render())
}
