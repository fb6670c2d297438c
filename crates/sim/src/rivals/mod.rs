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

/// Defines the rivals: the name, the description, and how it is built for a scenario.
macro_rules! rivals {
    ($scenario:ident, $rng:ident: $($name:literal $about:literal => $client:expr;)*) => {
        /// The names that [`build`] knows, in the order of tables.
        pub const NAMES: &[&str] = &[$($name),*];

        /// Returns the meaning of a name in one line.
        pub fn about(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some($about),)*
                _ => None,
            }
        }

        /// Creates the rival called `name`; `None` if there is no such rival. Only the oracle reads
        /// `scenario`. Rivals that draw random numbers use `seed`.
        pub fn build(name: &str, $scenario: &Scenario, seed: u64) -> Option<Box<dyn Client>> {
            let mut $rng = Rng::new(seed);
            Some(match name {
                $($name => Box::new($client),)*
                _ => return None,
            })
        }
    };
}

rivals! {
    scenario, rng:
    "aws" "AWS SDK adaptive retries 2.0 (botocore): CUBIC on the rate"
        => aws::Aws::new(aws::Spec::V20);
    "aws-rust" "AWS SDK for Rust before 2.1: the same, a retry costs 10 tokens"
        => aws::Aws::new(aws::Spec::V20Rust);
    "aws21" "AWS SDK adaptive retries 2.1: one token per attempt, backoff apart"
        => aws::Aws::new(aws::Spec::V21);
    "arc" "Vector adaptive request concurrency, around the retries (one endpoint)"
        => arc::Arc::new(arc::Stack::Around);
    "arc-inner" "Vector adaptive request concurrency, inside the retries (several endpoints)"
        => arc::Arc::new(arc::Stack::Inside);
    "autothrottle" "Scrapy AutoThrottle, target concurrency 1"
        => autothrottle::AutoThrottle::new(1.0, rng);
    "autothrottle8" "Scrapy AutoThrottle, target concurrency 8"
        => autothrottle::AutoThrottle::new(8.0, rng);
    "bisect" "Scrapy's proposed throttler (PR #6931): bisection of the delay"
        => bisect::Bisect::new(rng);
    "crawlee" "Crawlee's throttling request manager: exponential blocks" => crawlee::Crawlee::new();
    "aimd-bucket" "gadget-inc/aimd-bucket: AIMD on a window's failed share"
        => aimd_bucket::AimdBucket::new();
    "netflix-aimd" "Netflix concurrency-limits AIMDLimit, least limit 1"
        => netflix::Windowed::new(netflix::Aimd::new());
    "vegas" "Netflix concurrency-limits VegasLimit"
        => netflix::Windowed::new(netflix::Vegas::new(&mut rng));
    "gradient2" "Netflix concurrency-limits Gradient2Limit, least limit 1"
        => netflix::Windowed::new(netflix::Gradient2::new());
    "envoy" "Envoy adaptive concurrency, gradient controller" => envoy::Envoy::new();
    "sre" "Google SRE adaptive throttling, K = 2, 50 tries per second"
        => sre::SreThrottle::new(rng);
    "atb" "ATB adaptive token bucket (arXiv 2510.04516)" => atb::Atb::new();
    "aimd50" "textbook AIMD on the rate: x 0.5, + 0.1/s per second" => aimd::Aimd::new(0.5);
    "aimd90" "textbook AIMD on the rate: x 0.9, + 0.1/s per second" => aimd::Aimd::new(0.9);
    "jitter" "full-jitter backoff only, 16 connections, 1 s to 20 s" => jitter::FullJitter::new();
    "fixed1" "one request per second" => fixed::Fixed::new(1.0);
    "oracle" "told the limit: 0.99 of its long-run rate, or its slots"
        => oracle::Oracle::new(scenario);
}
