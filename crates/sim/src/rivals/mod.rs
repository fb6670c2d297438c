//! Laws of other projects, each as published, to be measured beside ours.
//!
//! Every file names its source: project, file, commit. Where a law leaves something open (a demand,
//! an interval without a default), the file names the value used here. Rivals read the headers and
//! Retry-After that their projects read. Constants are the project's unless the file says
//! otherwise.

mod aimd;
mod aimd_bucket;
mod arc;
mod atb;
mod autothrottle;
mod aws;
mod bisect;
mod crawlee;
mod envoy;
#[cfg(test)]
mod everywhere_tests;
mod fixed;
mod jitter;
mod netflix;
mod oracle;
mod pace;
mod sre;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

use politely_core::Rng;

use crate::client::Client;
use crate::scenario::Scenario;

/// The names that [`build`] knows, in the order of tables.
pub const NAMES: &[&str] = &[
    "aws",
    "aws-rust",
    "aws21",
    "arc",
    "arc-inner",
    "autothrottle",
    "autothrottle8",
    "bisect",
    "crawlee",
    "aimd-bucket",
    "netflix-aimd",
    "vegas",
    "gradient2",
    "envoy",
    "sre",
    "atb",
    "aimd50",
    "aimd90",
    "jitter",
    "fixed1",
    "oracle",
];

/// Returns the meaning of a name in one line.
pub fn about(name: &str) -> Option<&'static str> {
    Some(match name {
        "aws" => "AWS SDK adaptive retries 2.0 (botocore): CUBIC on the rate",
        "aws-rust" => "AWS SDK for Rust before 2.1: the same, a retry costs 10 tokens",
        "aws21" => "AWS SDK adaptive retries 2.1: one token per attempt, backoff apart",
        "arc" => "Vector adaptive request concurrency, around the retries (one endpoint)",
        "arc-inner" => {
            "Vector adaptive request concurrency, inside the retries (several endpoints)"
        }
        "autothrottle" => "Scrapy AutoThrottle, target concurrency 1",
        "autothrottle8" => "Scrapy AutoThrottle, target concurrency 8",
        "bisect" => "Scrapy's proposed throttler (PR #6931): bisection of the delay",
        "crawlee" => "Crawlee's throttling request manager: exponential blocks",
        "aimd-bucket" => "gadget-inc/aimd-bucket: AIMD on a window's failed share",
        "netflix-aimd" => "Netflix concurrency-limits AIMDLimit, least limit 1",
        "vegas" => "Netflix concurrency-limits VegasLimit",
        "gradient2" => "Netflix concurrency-limits Gradient2Limit, least limit 1",
        "envoy" => "Envoy adaptive concurrency, gradient controller",
        "sre" => "Google SRE adaptive throttling, K = 2, 50 tries per second",
        "atb" => "ATB adaptive token bucket (arXiv 2510.04516)",
        "aimd50" => "textbook AIMD on the rate: x 0.5, + 0.1/s per second",
        "aimd90" => "textbook AIMD on the rate: x 0.9, + 0.1/s per second",
        "jitter" => "full-jitter backoff only, 16 connections, 1 s to 20 s",
        "fixed1" => "one request per second",
        "oracle" => "told the limit: 0.99 of its long-run rate, or its slots",
        _ => return None,
    })
}

/// Creates the rival called `name`; `None` if there is no such rival. Only the oracle reads
/// `scenario`. Rivals that draw random numbers use `seed`.
pub fn build(name: &str, scenario: &Scenario, seed: u64) -> Option<Box<dyn Client>> {
    let mut rng = Rng::new(seed);
    Some(match name {
        "aws" => Box::new(aws::Aws::new(aws::Spec::V20)),
        "aws-rust" => Box::new(aws::Aws::new(aws::Spec::V20Rust)),
        "aws21" => Box::new(aws::Aws::new(aws::Spec::V21)),
        "arc" => Box::new(arc::Arc::new(arc::Stack::Around)),
        "arc-inner" => Box::new(arc::Arc::new(arc::Stack::Inside)),
        "autothrottle" => Box::new(autothrottle::AutoThrottle::new(1.0, rng)),
        "autothrottle8" => Box::new(autothrottle::AutoThrottle::new(8.0, rng)),
        "bisect" => Box::new(bisect::Bisect::new(rng)),
        "crawlee" => Box::new(crawlee::Crawlee::new()),
        "aimd-bucket" => Box::new(aimd_bucket::AimdBucket::new()),
        "netflix-aimd" => Box::new(netflix::Windowed::new(netflix::Aimd::new())),
        "vegas" => Box::new(netflix::Windowed::new(netflix::Vegas::new(&mut rng))),
        "gradient2" => Box::new(netflix::Windowed::new(netflix::Gradient2::new())),
        "envoy" => Box::new(envoy::Envoy::new()),
        "sre" => Box::new(sre::SreThrottle::new(rng)),
        "atb" => Box::new(atb::Atb::new()),
        "aimd50" => Box::new(aimd::Aimd::new(0.5)),
        "aimd90" => Box::new(aimd::Aimd::new(0.9)),
        "jitter" => Box::new(jitter::FullJitter::new()),
        "fixed1" => Box::new(fixed::Fixed::new(1.0)),
        "oracle" => Box::new(oracle::Oracle::new(scenario)),
        _ => return None,
    })
}
