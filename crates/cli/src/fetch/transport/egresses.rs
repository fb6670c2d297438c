//! The proxies of a run, and which of them a request takes.
//!
//! A proxy that fails is set aside for all hosts (`politely::core::fault::way`), and the request
//! takes another one at once: no request has reached the host, so neither host nor page pays.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::fault::Ways;
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{KeyKind, ProxyBy, Settings};
use crate::fetch::input::lines::without_login;
use crate::fetch::lanes::Lane;
use crate::fetch::lanes::pending::{Pending, Through};
use crate::fetch::report::talk::Talk;

/// The shortest wait of a request that found no proxy.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// An egress that the next request of a lane must take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) egress: usize,
    /// Whether other pages of the lane may take other egresses.
    pub(crate) is_of_page: bool,
}

/// Why an egress failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(crate) struct WayFailed {
    pub(crate) words: String,
    /// Whether it may serve other hosts.
    pub(crate) may_be_host: bool,
}

impl WayFailed {
    /// Returns the failure of an egress that serves no host.
    pub(crate) fn whole(words: String) -> Self {
        Self {
            words,
            may_be_host: false,
        }
    }
}

/// Why a request cannot leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoEgress {
    /// No egress works that it may take. It is tried again at this time.
    Before(Timestamp),
    /// Its only egress does not work for long, in words.
    Hopeless(String),
}

/// The egresses of a run: one per proxy, or one without proxies.
pub(crate) struct Egresses {
    ways: Mutex<Ways>,
    by: ProxyBy,
    /// The egress of each host, with `--proxy-by host`.
    by_host: Mutex<HashMap<Box<str>, usize>>,
    /// The URL of each proxy, without its login.
    names: Vec<String>,
    /// Whether each egress has keys of its own, so that a permit is for one egress.
    is_fixed: bool,
}

impl Egresses {
    pub(crate) fn new(settings: &Settings) -> Self {
        let names = settings.proxies.iter();
        Self {
            ways: Mutex::new(Ways::new(settings.proxies.len())),
            by: settings.proxy_by,
            by_host: Mutex::default(),
            names: names.map(|proxy| without_login(proxy)).collect(),
            is_fixed: settings.key == KeyKind::EgressHost,
        }
    }

    /// Returns the egress for a request of `pending` for `url` at `now`: the one that it keeps, or
    /// `turn`, or the next one that works.
    ///
    /// # Errors
    /// No egress works now. If none ever worked, there is no such error: a try tells why.
    pub(crate) fn choose(
        &self,
        now: Timestamp,
        pending: &Pending,
        url: &Url,
        turn: usize,
    ) -> Result<usize, NoEgress> {
        if self.is_fixed || self.names.is_empty() {
            return Ok(turn);
        }
        if let Through::Only(egress) = pending.through {
            return self.choose_only(now, egress);
        }
        let preferred = match self.by {
            // The last try failed there.
            ProxyBy::Attempt if !pending.is_untried() && pending.through == Through::Last(turn) => {
                turn + 1
            }
            ProxyBy::Attempt => turn,
            ProxyBy::Page => pending.through.egress().unwrap_or(turn),
            ProxyBy::Host => self.of_host(url),
        };
        let mut ways = self.ways();
        let chosen = match ways.choose(now, preferred) {
            Err(_) if !ways.has_worked() => preferred,
            chosen => chosen.map_err(NoEgress::Before)?,
        };
        drop(ways);
        self.keep(url, chosen);
        Ok(chosen)
    }

    /// Returns `egress` for a page that may take no other: its host may have refused it there.
    fn choose_only(&self, now: Timestamp, egress: usize) -> Result<usize, NoEgress> {
        let mut ways = self.ways();
        match ways.choose_only(now, egress) {
            Err(_) if ways.is_hopeless(egress) => Err(NoEgress::Hopeless(format!(
                "{}the host refused the page, and this proxy works no more; a refused page takes no other proxy",
                self.through(egress)
            ))),
            chosen => chosen.map_err(NoEgress::Before),
        }
    }

    /// Returns the egress whose permit the next request of `lane` needs, if each egress has permits
    /// of its own.
    pub(crate) fn bound(&self, lane: &Lane) -> Option<Bound> {
        if !self.is_fixed || self.names.len() < 2 {
            return None;
        }
        let returned = lane.next_returned();
        let of_page =
            returned.and_then(|page| Some((page.through.egress()?, page.through.is_only())));
        let bound = |egress, is_of_page| Bound { egress, is_of_page };
        match (of_page, self.by) {
            (Some((egress, true)), _) | (Some((egress, _)), ProxyBy::Page) => {
                Some(bound(egress, true))
            }
            (_, ProxyBy::Host) => Some(bound(self.of_host(&Url::parse(&lane.origin).ok()?), false)),
            _ => None,
        }
    }

    /// Returns the egress of the host of `url`. Hosts without one get the next in turn.
    fn of_host(&self, url: &Url) -> usize {
        let mut by_host = self.by_host();
        let next = by_host.len() % self.names.len().max(1);
        *by_host.entry(host(url)).or_insert(next)
    }

    /// Records that requests to the host of `url` go through `egress`, if hosts keep theirs.
    pub(crate) fn keep(&self, url: &Url, egress: usize) {
        if self.by == ProxyBy::Host {
            self.by_host().insert(host(url), egress);
        }
    }

    /// Records that a request for `url` got through on `egress`.
    pub(crate) fn worked(&self, egress: usize, url: &Url) {
        if !self.names.is_empty() {
            self.ways().worked(egress, xxh3_64(host(url).as_bytes()));
        }
    }

    /// Records that `egress` refused a request for `url`. Returns whether it refuses this host and
    /// not others. With permits of its own per egress, the next try takes another one in any case.
    pub(crate) fn refused(&self, egress: usize, url: &Url) -> bool {
        !self.is_fixed && self.ways().refused(egress, xxh3_64(host(url).as_bytes()))
    }

    /// Records that `egress` failed at `now`, and says so. Returns the egress that the same request
    /// takes next, if another one works and the request may take it.
    pub(crate) fn failed(
        &self,
        now: Timestamp,
        egress: usize,
        why: &WayFailed,
        is_bound: bool,
        talk: &Talk,
    ) -> Option<usize> {
        if self.is_fixed {
            return None;
        }
        let (aside, next, failures) = {
            let mut ways = self.ways();
            let aside = ways.failed(now, egress);
            (
                aside,
                ways.choose(now, egress + 1).ok(),
                ways.failures(egress),
            )
        };
        if let Some(aside) = aside {
            let (through, secs) = (self.through(egress), aside.as_secs());
            let pause = if next.is_none() {
                "; no proxy is left"
            } else {
                ""
            };
            talk.say(&format!(
                "warning: {through}{why}; it is set aside for {secs} s after {failures} failures{pause}"
            ));
        }
        next.filter(|_| !is_bound)
    }

    /// Returns another egress that works at `now`, if `egress` forwards requests for `url`. An
    /// answer that broke may be its fault.
    pub(crate) fn instead_of(&self, now: Timestamp, egress: usize, url: &Url) -> Option<usize> {
        let forwards = self.names.get(egress)?.starts_with("http") && url.scheme() == "http";
        if self.is_fixed || !forwards {
            return None;
        }
        let next = self.ways().choose(now, egress + 1).ok();
        next.filter(|next| *next != egress)
    }

    /// Returns the time of the next try after a failure at `now`, if a proxy worked before.
    pub(crate) fn next_try(&self, now: Timestamp) -> Option<Timestamp> {
        let ways = self.ways();
        if self.is_fixed || !ways.has_worked() {
            return None;
        }
        Some(ways.next_try(now).max(now + RETRY_MIN))
    }

    /// Returns the words for an error at a proxy, if `egress` is one.
    pub(crate) fn through(&self, egress: usize) -> String {
        let name = self.names.get(egress % self.names.len().max(1));
        name.map_or_else(String::new, |name| format!("through {name}: "))
    }

    /// Returns whether each egress has permits of its own.
    pub(crate) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Gives the host of `url` the egress after `egress`, which failed.
    pub(crate) fn leave(&self, url: &Url, egress: usize) {
        self.keep(url, (egress + 1) % self.names.len().max(1));
    }

    fn by_host(&self) -> MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.by_host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the host of `url`. Its ports and schemes share cookies, and so an egress.
fn host(url: &Url) -> Box<str> {
    url.host_str().unwrap_or_default().into()
}
