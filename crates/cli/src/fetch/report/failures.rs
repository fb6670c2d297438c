//! The failures of a run, for its summary: by host and reason, those with the most pages first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use url::Url;

use super::output::Row;
use crate::fetch::input::lines::{shown, without_login};

/// The number of groups that are kept. Failures of further ones are counted.
const GROUPS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    /// By host, and by reason without its numbers.
    known: HashMap<(String, String), Group>,
    others: u64,
}

/// Pages of one host that failed for one reason, or that stay for a later run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) pages: u64,
    /// Whether the pages stay for a later run with this state folder.
    pub(crate) is_left: bool,
    pub(crate) host: String,
    /// The first of the pages.
    pub(crate) url: String,
    pub(crate) reason: String,
    pub(crate) to_do: &'static str,
}

impl Failures {
    /// Counts a page that failed because of `why`.
    pub(crate) fn add(&self, row: &Row<'_>, why: &str) {
        let host = Url::parse(row.url).ok().and_then(|url| host_of(&url));
        let host = host.unwrap_or_else(|| row.key.to_owned());
        let reason: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = groups.known.len() >= GROUPS_MAX;
        let key = (host, reason);
        if let Some(group) = groups.known.get_mut(&key) {
            group.pages += 1;
        } else if is_full {
            groups.others += 1;
        } else {
            let group = Group {
                pages: 1,
                is_left: false,
                host: key.0.clone(),
                url: shown(without_login(row.url).as_bytes()),
                reason: shown(why.as_bytes()),
                to_do: to_do(why, row.status),
            };
            groups.known.insert(key, group);
        }
    }

    /// Returns the groups together with those of the pages that are `left`, the largest first, and
    /// the number of failures beyond them.
    pub(crate) fn told(&self, left: Vec<Group>) -> (Vec<Group>, u64) {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Group> = groups.known.values().cloned().chain(left).collect();
        all.sort_by(|a, b| {
            let order = |group: &Group| Reverse(group.pages);
            (order(a), &a.host, &a.url).cmp(&(order(b), &b.host, &b.url))
        });
        (all, groups.others)
    }
}

impl Group {
    /// Returns the `pages` of `host` that stay for a later run because of `why`.
    pub(crate) fn left(host: &str, pages: u64, why: &str) -> Self {
        Self {
            pages,
            is_left: true,
            host: host.to_owned(),
            url: String::new(),
            reason: shown(why.as_bytes()),
            to_do: to_do(why, None),
        }
    }

    /// Returns the name for people: the page, if it is only one.
    pub(crate) fn name(&self) -> &str {
        if self.pages == 1 && !self.is_left {
            &self.url
        } else {
            &self.host
        }
    }
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(
        url.port()
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
    )
}

/// Returns what a user can do about pages that failed because of `why`, after an answer with
/// `status`.
fn to_do(why: &str, status: Option<u16>) -> &'static str {
    match status {
        _ if why.contains("blocked by the host") => "ask its owner",
        _ if why.starts_with("robots.txt: Disallow") => "final",
        None if why.contains("no such host") => "check the name",
        None if why.contains("no connection") => "check the address",
        None if why.contains("TLS") => "check its certificate",
        _ if why.starts_with("robots.txt") => "try later",
        Some(401 | 407) => "needs a login",
        None | Some(408 | 425 | 429 | 500..) => "try later",
        Some(_) => "final",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(failures: &Failures, url: &str, status: Option<u16>, why: &str) {
        let row = Row {
            url,
            status,
            error: Some(why),
            ..Row::default()
        };
        failures.add(&row, why);
    }

    #[test]
    fn failures_stand_by_host_and_reason_the_most_first() {
        let failures = Failures::default();
        for page in 0..3 {
            let url = format!("http://a.example/{page}");
            fail(&failures, &url, Some(404), "404 Not Found");
        }
        for page in 0..5 {
            let url = format!("https://u:secret@b.example:8443/{page}");
            let why = format!("the host served nothing for {} s", 30 + page);
            fail(&failures, &url, None, &why);
        }
        fail(
            &failures,
            "http://a.example/x",
            None,
            "no such host: a.example",
        );
        let blocked = Group::left("d.example", 48, "d.example: blocked by the host: 403");
        let (groups, others) = failures.told(vec![blocked]);
        let told: Vec<_> = (groups.iter())
            .map(|group| (group.pages, group.name(), &*group.reason, group.to_do))
            .collect();
        let nothing = "the host served nothing for 30 s";
        let named = "no such host: a.example";
        let expected = [
            (
                48,
                "d.example",
                "d.example: blocked by the host: 403",
                "ask its owner",
            ),
            (5, "b.example:8443", nothing, "try later"),
            (3, "a.example", "404 Not Found", "final"),
            (1, "http://a.example/x", named, "check the name"),
        ];
        assert_eq!((told.as_slice(), others), (&expected[..], 0));
        assert!(!groups[1].url.contains("secret"), "{}", groups[1].url);
    }

    #[test]
    fn a_run_with_endless_reasons_keeps_a_bounded_number() {
        let failures = Failures::default();
        for host in 0..GROUPS_MAX + 7 {
            let url = format!("http://h{host}.example/");
            fail(&failures, &url, Some(404), "404 Not Found");
        }
        let (groups, others) = failures.told(Vec::new());
        assert_eq!((groups.len(), others), (GROUPS_MAX, 7));
    }
}
