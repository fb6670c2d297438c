//! `--otlp URL`: an OpenTelemetry collector that gets spans and metrics.

use clap::Args;
use politely_otlp::Collector;

use crate::exit::Wrong;
use crate::log;

/// The collector of a command.
#[derive(Args, Debug)]
pub(crate) struct OtlpArgs {
    /// Send a span per acquire, and metrics, to the OpenTelemetry collector at URL, as OTLP over
    /// HTTP (`http://127.0.0.1:4318`)
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

impl OtlpArgs {
    /// Returns the collector, if one is named. Call this outside of a runtime.
    pub(crate) fn collector(&self) -> Result<Option<Collector>, Wrong> {
        let start = |url: &String| {
            let collector = Collector::start(url, |line| log::say(&format!("politely: {line}")));
            collector.map_err(|why| Wrong(format!("--otlp: {why}")))
        };
        self.otlp.as_ref().map(start).transpose()
    }
}
