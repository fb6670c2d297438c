//! The text of `/metrics`, in Prometheus' format.
//!
//! | metrics | recorder |
//! | --- | --- |
//! | totals and states | a new one for each scrape, so that no series outlives its key |
//! | histograms, and counters that count at once | one for the process |

use std::sync::OnceLock;

use metrics::{KeyName, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use politely::cells::Severity;
use politely::core::key::Key;
use politely_api::wire::FrontierCrawls;
use politely_otlp::Collector;

use super::histogram::{BOUNDS, Histograms, Split};
use super::process;
use super::table::STATES;
use crate::coordinator::Coordinator;
use crate::frontier::FrontierService;

/// The number of keys in each ranking of `/metrics`.
const TOP: usize = 10;

static RECORDER: OnceLock<Option<(PrometheusHandle, Histograms)>> = OnceLock::new();

/// Pairs each metric with its help text.
macro_rules! help {
    ($($name:ident $text:literal)*) => { [$((stringify!($name), $text)),*] };
}

/// The help text of each counter and gauge.
const HELP: [(&str, &str); 45] = help! {
    politely_build_info "Version and commit of the coordinator; the value is always 1."
    politely_cancelled_total "Permits returned without a report."
    politely_cell_reads_total "Reads of a key's cell in the engine."
    politely_cells_lost_total "Keys of which the engine lost something."
    politely_client_keys_refused_total "Items refused because their client had too many keys."
    politely_commit_conflicts_total "Writes to the engine that met another write and were repeated."
    politely_commit_items_total "Permits and reports in confirmed writes to the engine."
    politely_commits_total "Writes that the engine confirmed."
    politely_commits_unknown_total "Writes to the engine without an answer."
    politely_coordinators "Processes that share the engine, this one included."
    politely_engine_risks "Settings of the engine that lose acknowledged changes, by severity."
    politely_engine_unavailable "1 while the engine is unavailable, else 0."
    politely_evicted_total "Keys evicted to stay within the capacity."
    politely_frontier_domains "Domains of a crawl."
    politely_frontier_pages "Pages of a crawl, by state: ready, dated, leased or finished."
    politely_frontier_units "Live units of work of all crawls, each with one owner."
    politely_granted_at_once_total "Requested items that their keys granted at the first decision."
    politely_granted_total "Permits granted."
    politely_hit_ratio "Share of requested items that met a limit and had to wait, since the start."
    politely_journal_failures_total "Lines of the journal that could not be written."
    politely_key_states "Keys by state."
    politely_keys "Known keys."
    politely_late_total "Reports that came after their lease had expired."
    politely_live_permits "Permits that have not ended."
    politely_login_failures_total "Calls with a wrong token."
    politely_memory_bytes "Estimated memory for keys."
    politely_outcomes_total "Reported outcomes by signal."
    politely_refused_share "Share of reported outcomes that were refusals, since the start."
    politely_refused_total "Reported outcomes that were refusals by the host."
    politely_reported_total "Outcomes reported."
    politely_requested_total "Items requested by workers."
    politely_responses_total
        "Reported outcomes by class of the status; none is a request without an answer."
    politely_sessions "Sessions that this coordinator knows."
    politely_state_commits_total "Transactions of the state folder that were written."
    politely_state_failures_total "Transactions of the state folder that failed."
    politely_top_rate "Permits per second of the busiest keys, over ten seconds."
    politely_top_refused_total "Refusals of the keys with the most refusals."
    politely_top_wait_seconds "Time until the next request of the keys with the longest waits."
    politely_turned_away_total "Requests for a permit that a key did not grant at once."
    politely_waiting "Requests for a permit that wait now."
    process_max_fds "Maximum number of open file descriptors."
    process_open_fds "Number of open file descriptors."
    process_resident_memory_bytes "Resident memory size in bytes."
    process_start_time_seconds "Start time of the process since unix epoch in seconds."
    process_virtual_memory_bytes "Virtual memory size in bytes."
};

/// The help text of each histogram.
const HISTOGRAM_HELP: [(&str, &str); 2] = [
    (
        "politely_commit_seconds",
        "Time from a batch's first read or attempt until its write is confirmed.",
    ),
    (
        "politely_wait_seconds",
        "Waits of requests for a permit that were not granted at once.",
    ),
];

/// Installs the metrics recorder of this process. Does nothing if the process has a recorder
/// already. The samples of histograms go to `collector` too.
pub(crate) fn install(collector: Option<&Collector>) {
    RECORDER.get_or_init(|| {
        let mut histograms = Histograms::default();
        if let Some(collector) = collector {
            let sent =
                HISTOGRAM_HELP.map(|(name, help)| (name, collector.histogram(name, help, &BOUNDS)));
            histograms.send_to(sent.into());
        }
        let split = Split {
            exporter: PrometheusBuilder::new().build_recorder(),
            histograms: histograms.clone(),
        };
        describe(&split);
        let handle = split.exporter.handle();
        ::metrics::set_global_recorder(split).ok()?;
        // These series exist from the start, so that a first increment is visible.
        histograms.declare("politely_wait_seconds");
        ::metrics::counter!("politely_login_failures_total").increment(0);
        Some((handle, histograms))
    });
}

/// Sends the numbers of each scrape to `collector`, apart from histograms, which [`install`] sends.
pub(crate) fn export(
    collector: &Collector,
    coordinator: Coordinator,
    frontier: Option<FrontierService>,
    commit: &'static str,
) {
    collector.observe(&HELP, move || {
        emit(&coordinator, commit);
        if let Some(frontier) = &frontier {
            emit_frontier(frontier.seen_crawls());
        }
    });
}

/// Returns the text of a scrape. It is slow with a million keys, so it must not run on an async
/// thread.
///
/// The series of the process are missing if another recorder was installed before the server.
pub(crate) fn scrape(
    coordinator: &Coordinator,
    crawls: Option<FrontierCrawls>,
    commit: &'static str,
) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    describe(&recorder);
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, || {
        emit(coordinator, commit);
        if let Some(crawls) = crawls {
            emit_frontier(crawls);
        }
    });
    let mut text = handle.render();
    process::render_cpu(&mut text);
    if let Some((handle, histograms)) = RECORDER.get().and_then(Option::as_ref) {
        if coordinator.limiter().commits().is_some() {
            histograms.declare("politely_commit_seconds");
        }
        text.push_str(&handle.render());
        histograms.render(&mut text);
    }
    text
}

fn describe(recorder: &impl Recorder) {
    for (name, help) in HELP {
        let name = KeyName::from_const_str(name);
        recorder.describe_gauge(name, None, SharedString::const_str(help));
    }
    for (name, help) in HISTOGRAM_HELP {
        let name = KeyName::from_const_str(name);
        recorder.describe_histogram(name, None, SharedString::const_str(help));
    }
}

/// Hands the numbers of the frontier to the recorder.
fn emit_frontier(crawls: FrontierCrawls) {
    ::metrics::gauge!("politely_frontier_units").set(crawls.units as f64);
    for crawl in crawls.crawls {
        let name = crawl.crawl;
        ::metrics::gauge!("politely_frontier_domains", "crawl" => name.clone())
            .set(crawl.domains as f64);
        for (state, count) in [
            ("ready", crawl.ready),
            ("dated", crawl.dated),
            ("leased", crawl.leased),
            ("finished", crawl.finished),
        ] {
            ::metrics::gauge!("politely_frontier_pages", "crawl" => name.clone(), "state" => state)
                .set(count as f64);
        }
    }
}

/// Hands the totals and the present state to the recorder.
fn emit(coordinator: &Coordinator, commit: &'static str) {
    let (limiter, watch) = (coordinator.limiter(), coordinator.watch());
    ::metrics::gauge!(
        "politely_build_info", "version" => env!("CARGO_PKG_VERSION"), "commit" => commit
    )
    .set(1.0);
    limiter.stats().emit();
    watch.emit();
    if let Some(commits) = limiter.commits() {
        commits.emit();
        let away = limiter.last_error().is_some();
        ::metrics::gauge!("politely_engine_unavailable").set(f64::from(u8::from(away)));
        let risks = limiter.risks();
        for (severity, name) in [
            (Severity::Critical, "critical"),
            (Severity::Warning, "warning"),
        ] {
            let count = risks.iter().filter(|risk| risk.severity == severity);
            ::metrics::gauge!("politely_engine_risks", "severity" => name)
                .set(count.count() as f64);
        }
    }
    if let Some(kept) = coordinator.kept() {
        ::metrics::counter!("politely_state_commits_total").absolute(kept.commits);
        ::metrics::counter!("politely_state_failures_total").absolute(kept.failures);
        ::metrics::counter!("politely_journal_failures_total").absolute(kept.journal_failures);
    }
    ::metrics::counter!("politely_client_keys_refused_total").absolute(coordinator.refused_keys());
    let (at_once, requested) = coordinator.hits();
    ::metrics::counter!("politely_granted_at_once_total").absolute(at_once);
    ::metrics::counter!("politely_requested_total").absolute(requested);
    ::metrics::gauge!("politely_hit_ratio").set(coordinator.hit_rate());
    ::metrics::gauge!("politely_sessions").set(coordinator.sessions() as f64);
    ::metrics::gauge!("politely_live_permits").set(coordinator.live() as f64);
    let table = watch.table_metrics(limiter, TOP);
    for ((_, state), count) in STATES.iter().zip(table.states) {
        ::metrics::gauge!("politely_key_states", "state" => *state).set(count as f64);
    }
    let label = |key: Key| key.as_str().to_owned();
    for (key, seconds) in table.waits {
        ::metrics::gauge!("politely_top_wait_seconds", "key" => label(key)).set(seconds);
    }
    for (key, refused) in table.refused {
        ::metrics::counter!("politely_top_refused_total", "key" => label(key)).absolute(refused);
    }
    for (key, rate) in watch.busiest(limiter.now(), TOP) {
        ::metrics::gauge!("politely_top_rate", "key" => label(key)).set(rate);
    }
    process::emit();
}
