//! Reads quotas from structured fields (RFC 9651): drafts 07 to 10.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use super::super::Unit;
use super::{COUNT_MAX, ITEMS_MAX, Quota, SPAN_MAX};

/// The longest field that is read, in bytes of all its lines together. Longer ones are ignored.
const FIELD_LEN_MAX: usize = 4_096;

/// One item of RateLimit-Policy.
struct Policy {
    /// Absent up to draft 07.
    name: Option<String>,
    limit: u64,
    window: Option<Duration>,
    unit: Unit,
}

/// Passes every quota of the two fields to `found`, each with the numbers of its policy.
///
/// A policy that the first field does not mention is passed alone.
pub(super) fn quotas(headers: &HeaderMap, mut found: impl FnMut(Quota)) {
    let policies = field(headers, "ratelimit-policy").map_or_else(Vec::new, |text| policies(&text));
    let Some(text) = field(headers, "ratelimit") else {
        for policy in &policies {
            found(policy.quota());
        }
        return;
    };
    if let Ok(list) = Parser::new(&text).parse::<List>() {
        let mut mentioned = vec![false; policies.len()];
        for item in items(&list) {
            let BareItem::String(name) = &item.bare_item else {
                continue;
            };
            let policy = policies
                .iter()
                .position(|policy| policy.name.as_deref() == Some(name.as_str()));
            if let Some(policy) = policy {
                mentioned[policy] = true;
            }
            let policy = policy.map(|policy| &policies[policy]);
            if let Some(quota) = service_limit(&item.params, policy) {
                found(quota);
            }
        }
        let silent = policies
            .iter()
            .zip(mentioned)
            .filter(|(_, mentioned)| !mentioned);
        silent.for_each(|(policy, _)| found(policy.quota()));
    } else if let Ok(dictionary) = Parser::new(&text).parse::<Dictionary>() {
        found(draft_07(&dictionary, &policies));
    }
}

impl Policy {
    fn quota(&self) -> Quota {
        Quota {
            unit: self.unit,
            limit: Some(self.limit),
            window: self.window,
            ..Quota::default()
        }
    }
}

/// Reads `r` and `t` of a `RateLimit` item. Returns `None` if both are missing or either is
/// malformed.
fn service_limit(params: &Parameters, policy: Option<&Policy>) -> Option<Quota> {
    let remaining = match params.get("r") {
        Some(r) => Some(count(r)?),
        None => params.get("t").map(|_| None)?,
    };
    let reset = match params.get("t") {
        Some(t) => Some(Duration::from_secs(whole(t)?)).filter(|reset| *reset <= SPAN_MAX),
        None => None,
    };
    let base = policy.map_or_else(Quota::default, Policy::quota);
    Some(Quota {
        remaining,
        reset,
        ..base
    })
}

fn policies(text: &str) -> Vec<Policy> {
    let Ok(list) = Parser::new(text).parse::<List>() else {
        return Vec::new();
    };
    items(&list).filter_map(policy).collect()
}

fn policy(item: &Item) -> Option<Policy> {
    let params = &item.params;
    let (name, limit) = match &item.bare_item {
        BareItem::String(name) => (Some(name.as_str().to_owned()), count(params.get("q")?)?),
        limit => (None, count(limit)?),
    };
    let window = match params.get("w") {
        Some(w) => Some(Duration::from_secs(whole(w).filter(|secs| *secs > 0)?)),
        None => None,
    };
    let unit = match params.get("qu") {
        Some(BareItem::String(unit)) => unit_of(unit.as_str()),
        Some(_) => return None,
        None => Unit::Requests,
    };
    Some(Policy {
        name,
        limit,
        window: window.filter(|window| *window <= SPAN_MAX),
        unit,
    })
}

/// Returns the unit of a name. The draft registers `requests`, `content-bytes` and
/// `concurrent-requests`.
fn unit_of(name: &str) -> Unit {
    let has = |part: &str| name.to_ascii_lowercase().contains(part);
    if has("concurrent") {
        Unit::Concurrency
    } else if has("byte") {
        Unit::Bytes
    } else if has("token") {
        Unit::Tokens
    } else if has("request") {
        Unit::Requests
    } else {
        Unit::Points
    }
}

/// Reads `limit=100, remaining=50, reset=30`. The window is that of the policy with this limit.
fn draft_07(dictionary: &Dictionary, policies: &[Policy]) -> Quota {
    let value = |key: &str| match dictionary.get(key) {
        Some(ListEntry::Item(item)) => Some(&item.bare_item),
        _ => None,
    };
    let limit = value("limit").and_then(count);
    let policy = policies.iter().find(|policy| Some(policy.limit) == limit);
    let reset = value("reset").and_then(whole).map(Duration::from_secs);
    Quota {
        of_account: false,
        unit: policy.map_or(Unit::Requests, |policy| policy.unit),
        limit,
        window: policy.and_then(|policy| policy.window),
        remaining: value("remaining").and_then(count),
        reset: reset.filter(|reset| *reset <= SPAN_MAX),
    }
}

fn items(list: &List) -> impl Iterator<Item = &Item> {
    list.iter().take(ITEMS_MAX).filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    })
}

fn count(item: &BareItem) -> Option<u64> {
    whole(item).map(|count| count.min(COUNT_MAX))
}

fn whole(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}

/// Returns all lines of a field as the single line that they stand for (RFC 9110 section 5.3).
fn field(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut text = String::new();
    for value in headers.get_all(name) {
        let line = value.to_str().ok()?;
        if text.len() + line.len() > FIELD_LEN_MAX {
            return None;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(line);
    }
    (!text.is_empty()).then_some(text)
}
