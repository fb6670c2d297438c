//! Bodies of the frontier's calls for operators: numbers, domains, pages and orders.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::whole::{self, maybe};

/// All crawls of a frontier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierCrawls {
    /// The crawls, by name.
    pub crawls: Vec<FrontierCounts>,
    /// Live units of work of all crawls.
    pub units: u64,
}

/// The numbers of a crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierCounts {
    /// The name of the crawl.
    pub crawl: String,
    /// Whether the crawl is paused, so that none of its domains is handed out.
    pub paused: bool,
    /// Domains.
    pub domains: u64,
    /// Pages that were ever accepted.
    pub pages: u64,
    /// Pages that wait for their domain only.
    pub ready: u64,
    /// Pages that wait for a date.
    pub dated: u64,
    /// Pages in live units of work.
    pub leased: u64,
    /// Pages that were visited for the last time, or purged.
    pub finished: u64,
}

/// A part of the list of domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct FrontierDomainsQuery {
    /// The domain after which the list begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most domains, at most 1,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Some domains of a crawl, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierDomains {
    /// The domains. The list continues after the last one, unless it is shorter than `limit`.
    pub domains: Vec<FrontierDomain>,
}

/// A domain of a crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierDomain {
    /// The domain, as a key.
    pub domain: String,
    /// Pages that were ever accepted.
    pub pages: u64,
    /// Pages that wait for the domain only.
    pub ready: u64,
    /// Pages that wait for a date.
    pub dated: u64,
    /// Pages in live units of work.
    pub leased: u64,
    /// Pages that were visited for the last time, or purged.
    pub finished: u64,
    /// The fencing tokens of the units of its owners.
    pub owners: Vec<u64>,
    /// The time for which the domain is not handed out, in milliseconds.
    pub wait_ms: u64,
    /// The date until which an operator blocked it, in milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_until_unix_ms: Option<u64>,
    /// The least pause between two units, by an operator's order, in milliseconds.
    pub delay_ms: u64,
}

/// The options of `owners`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct FrontierOwnersQuery {
    /// The most owners, at most 1,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Some owners of domains of a crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierOwners {
    /// The owners, the oldest unit first.
    pub owners: Vec<FrontierOwner>,
}

/// An owner of a domain: a live unit of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierOwner {
    /// The domain, as a key.
    pub domain: String,
    /// The worker. Absent for a unit that was handed out before the coordinator started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The fencing token of the unit.
    pub token: u64,
    /// Its pages without an outcome.
    pub pages: u32,
    /// The rest of its lease, in milliseconds.
    pub lease_ms: u64,
}

/// The options of `urls/{url}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct FrontierUrlQuery {
    /// The domain with which the page was added, if it does not follow from the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What is known about a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierUrl {
    /// The canonical URL.
    pub url: String,
    /// The domain, as a key.
    pub domain: String,
    /// The date at which the page was added, in milliseconds since 1970 (UTC), in whole seconds.
    pub added_unix_ms: u64,
    /// The fencing token of the unit that has the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
    /// The date of the last visit, in milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visited_unix_ms: Option<u64>,
    /// The status of the last visit, 0 for no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The date of the next visit, if the last visit set it, in milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_unix_ms: Option<u64>,
    /// The JSON with which the page was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A part of the list of pages of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct FrontierPagesQuery {
    /// The domain.
    pub domain: String,
    /// The `next` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most pages, at most 1,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Some pages of a domain, in no order that means something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierPages {
    /// The pages, visited or not.
    pub pages: Vec<FrontierUrl>,
    /// Where the list continues. Absent at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The part of a crawl that an order is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierPart {
    /// The domain. Default: the whole crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// An order to block a domain, or to unblock it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierBlock {
    /// The domain.
    pub domain: String,
    /// The date until which it is blocked, in milliseconds since 1970 (UTC). Absent or in the past:
    /// it is not blocked.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub until_unix_ms: Option<u64>,
}

/// An order to pause between the units of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierDelay {
    /// The domain.
    pub domain: String,
    /// The least pause between two units, in milliseconds. 0 removes it.
    #[serde(with = "whole")]
    pub delay_ms: u64,
}

/// An order to pause a crawl, or to continue it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierPause {
    /// Whether the crawl is paused.
    pub paused: bool,
}
