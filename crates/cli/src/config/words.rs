//! The values of settings that are words.

use std::sync::Arc;

use clap::ValueEnum;
use politely::coordinator::OnUnavailable;
use politely::core::config::Config;
use politely::core::control::LawConfig;
use politely::store::Unavailable;
use politely::{DeclaredLimits, OperatorNumbers};
use serde::Deserialize;

/// The set of default rules of conduct.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Profile {
    /// robots.txt obeyed, start at 1 request/s per host, never more than 10/s, 4 in flight
    #[default]
    Crawler,
    /// no robots.txt, no politeness cap, up to 64 in flight: the learned limit alone decides
    Api,
}

/// The control law that learns a host's limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LawName {
    /// finds the host's limit and stays just below it
    Discover,
    /// keeps the rate unchanged
    Fixed,
    /// raises the rate in steps, cuts it to 0.8 once per congestion event
    Aimd,
    /// computes a suggested rate and applies nothing
    Advice,
}

/// The behaviour while the engine that keeps the keys is unavailable.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreUnavailable {
    /// nothing is sent
    #[default]
    Closed,
    /// each process uses 1/N of every rate and slot, for at most a minute
    Share,
}

impl From<StoreUnavailable> for Unavailable {
    fn from(word: StoreUnavailable) -> Self {
        match word {
            StoreUnavailable::Closed => Self::Closed,
            StoreUnavailable::Share => Self::Share,
        }
    }
}

/// The behaviour while no coordinator answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnUnavailableName {
    /// nothing is sent until one answers
    #[default]
    Wait,
    /// this worker uses its share of every rate and cap, if the coordinator allows it
    Share,
    /// the run ends
    Stop,
}

impl From<OnUnavailableName> for OnUnavailable {
    fn from(word: OnUnavailableName) -> Self {
        match word {
            OnUnavailableName::Wait => Self::Wait,
            OnUnavailableName::Share => Self::Share,
            OnUnavailableName::Stop => Self::Stop,
        }
    }
}

impl LawName {
    /// Returns the law with its constants.
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
    /// Returns the profile's numbers, overridden by an operator's.
    pub(crate) fn config(
        self,
        law: Option<LawName>,
        set: OperatorNumbers,
        declared: DeclaredLimits,
    ) -> Config {
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
            // With a law that changes the rate, the operator's number is its bound. With another
            // law it is the rate.
            let moves = matches!(config.law, LawConfig::Aimd(_) | LawConfig::Discover(_));
            limits.rate_start = if moves {
                limits.rate_start.min(rate)
            } else {
                rate
            };
        }
        limits.burst = set.burst.unwrap_or(limits.burst);
        limits.in_flight = set.in_flight.unwrap_or(limits.in_flight);
        config.declared = declared;
        config
    }
}

/// The retry policy.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RetryName {
    /// refused requests wait in the queue without counting; failures are retried five times, within
    /// a budget
    #[default]
    Crawler,
    /// four attempts, 429 and 5xx alike, 0.3 s doubling to 4 s and more after a 429; two 429s in a
    /// row are final
    JobScraper,
}

/// The scope of a limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyKind {
    /// the host's name and port
    #[default]
    Host,
    /// the registrable domain: www.example.co.uk and api.example.co.uk share one limit
    Site,
    /// the address that the host's name resolves to
    Address,
    /// the host as seen through each proxy: every egress has its own limit
    EgressHost,
}

/// The owner of a proxy, if there are several.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProxyBy {
    /// nothing: proxies take turns, attempt by attempt
    #[default]
    Attempt,
    /// all attempts of a page go through one proxy
    Page,
    /// a host keeps its proxy and its cookies, until that proxy is set aside
    Host,
}

/// The form of the summary at the end of the run.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SummaryForm {
    /// for people, on standard error
    #[default]
    Text,
    /// one JSON object on standard output
    Json,
    /// no summary
    None,
}
