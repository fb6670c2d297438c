//! The words that settings are said in.

use std::sync::Arc;

use clap::ValueEnum;
use politely::OperatorNumbers;
use politely::core::config::Config;
use politely::core::control::LawConfig;
use politely::shared::Away;
use serde::Deserialize;

/// Which rules of conduct to start from.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Profile {
    /// robots.txt obeyed, start at 1 request/s per host, never more than 10/s, 4 in flight
    #[default]
    Crawler,
    /// no robots.txt, no politeness cap, up to 64 in flight: the learned limit alone decides
    Api,
}

/// Which control law learns a host's limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LawName {
    /// finds the host's limit and rides just below it
    Discover,
    /// the rate stays what it is
    Fixed,
    /// up by steps, down by half once per congestion event
    Aimd,
    /// computes a suggested rate and applies nothing
    Advice,
}

/// What is done while the engine that keeps the keys is away.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreAway {
    /// nothing leaves
    #[default]
    Closed,
    /// each process goes on with 1/N of every rate and slot, for a minute at most
    Share,
}

impl From<StoreAway> for Away {
    fn from(word: StoreAway) -> Self {
        match word {
            StoreAway::Closed => Self::Closed,
            StoreAway::Share => Self::Share,
        }
    }
}

impl LawName {
    /// The law, with its constants.
    pub(crate) fn law(self) -> LawConfig {
        match self {
            Self::Discover => LawConfig::Discover(Arc::default()),
            Self::Fixed => LawConfig::Fixed,
            Self::Aimd => LawConfig::Aimd(Arc::default()),
            Self::Advice => LawConfig::Advice(Arc::default()),
        }
    }
}

impl Profile {
    /// Its numbers, and over them an operator's.
    pub(crate) fn config(self, law: Option<LawName>, set: OperatorNumbers) -> Config {
        let mut config = match self {
            Self::Crawler => Config::crawler(),
            Self::Api => Config::api(),
        };
        if let Some(law) = law {
            config = config.with_law(law.law());
        }
        let limits = &mut config.limits;
        if let Some(rate) = set.rate {
            limits.rate_max = rate;
            // With a law that does not move, the operator's number is the rate; else only its bound.
            let moves = matches!(config.law, LawConfig::Aimd(_) | LawConfig::Discover(_));
            limits.rate_start = if moves {
                limits.rate_start.min(rate)
            } else {
                rate
            };
        }
        limits.burst = set.burst.unwrap_or(limits.burst);
        limits.in_flight = set.in_flight.unwrap_or(limits.in_flight);
        config
    }
}

/// Which requests go again, and when.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RetryName {
    /// refused requests wait in line without counting; failures five times, within a budget
    #[default]
    Crawler,
    /// four attempts, 429 and 5xx alike, 0.3 s doubling to 4 s and more after a 429; two 429s in a row are final
    JobScraper,
}

/// What a limit attaches to.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyKind {
    /// the host's name and port
    #[default]
    Host,
    /// the registrable domain: www.example.co.uk and api.example.co.uk share one limit
    Site,
    /// the address the host's name leads to
    Address,
    /// the host as seen through each proxy: every egress has a limit of its own
    EgressHost,
}

/// How the run's end is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SummaryForm {
    /// for people, on standard error
    #[default]
    Text,
    /// one JSON object on standard output
    Json,
    /// not at all
    None,
}
