//! A cache of the robots.txt of each origin, with the time at which each must be fetched again.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use politely_core::Timestamp;

use super::pattern::Rule;
use super::{Availability, Origin, Robots};

/// Longest time for which a copy is used without another fetch: 24 h (RFC 9309, 2.4).
pub const MAX_TTL: Duration = Duration::from_hours(24);

/// Wait after the first failed fetch: 1 min. A restart of the server is over by then.
pub const RETRY_FIRST: Duration = Duration::from_mins(1);

/// Longest wait, reached by doubling: 1 h. It is cheap for a host that is down for days, and short
/// enough for a host that comes back.
pub const RETRY_MAX: Duration = Duration::from_hours(1);

/// Over capacity, one entry in this many is evicted at once, because an eviction scans all entries.
const EVICTED_SHARE: usize = 16;

/// Average bytes of rules for each origin of the capacity. A common file has well below 100 rules
/// of 60 B for `*`. A hostile file fills 500 KiB with shortest rules, which take some MB, and its
/// owner can name any number of hosts.
const RULE_BYTES: usize = 4 * 1024;

/// The rules of many origins for one product token.
///
/// The cache holds at most `capacity` answers, with 4 KiB of rules for each on average. Its memory
/// is therefore at most about 4.3 KiB x `capacity` (or one file, if that is more). The oldest
/// entries are evicted first. An origin in backoff is evicted last, because without its entry it
/// would be fetched too early. Entries that are being fetched are not included; their number is the
/// caller's fetches in flight. The cache keeps parsed rules, and only those of its own group.
#[derive(Debug)]
pub struct RobotsCache {
    pub(super) agent: String,
    capacity: usize,
    pub(super) ttl: Duration,
    pub(super) entries: HashMap<Origin, Entry, RandomState>,
    /// Bytes of all rules in `entries`.
    rule_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The last definite answer, if there was one.
    pub(super) copy: Option<Arc<Robots>>,
    /// Time of the next fetch.
    pub(super) due: Timestamp,
    /// Number of failed fetches since the last definite answer.
    pub(super) failures: u32,
    pub(super) fetching: bool,
}

/// The state of an origin in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// These rules are in force.
    Fresh(Arc<Robots>),
    /// The caller must fetch now, and then call [`insert`](RobotsCache::insert) or
    /// [`abandon`](RobotsCache::abandon). Until then all other callers get `Pending`.
    Fetch,
    /// Another caller is fetching.
    Pending,
    /// The rules are unknown, so nothing is allowed before another attempt.
    Unreachable {
        /// Time from which a lookup returns `Fetch`.
        retry_at: Timestamp,
    },
}

impl RobotsCache {
    /// Creates a cache for the product token `agent` (see [`Robots::from_response`]). `capacity`
    /// counts origins and is at least 1. `ttl` is at most [`MAX_TTL`], the usual choice.
    pub fn new(agent: &str, capacity: usize, ttl: Duration) -> Self {
        Self {
            agent: super::product_token(agent).to_ascii_lowercase(),
            capacity: capacity.max(1),
            ttl: ttl.min(MAX_TTL),
            entries: HashMap::default(),
            rule_bytes: 0,
        }
    }

    /// Returns the state of `origin`. Returns `Fetch` to one caller at a time.
    pub fn lookup(&mut self, origin: &Origin, now: Timestamp) -> Lookup {
        let Some(entry) = self.entries.get_mut(origin) else {
            self.entries.insert(
                origin.clone(),
                Entry {
                    fetching: true,
                    ..Entry::default()
                },
            );
            return Lookup::Fetch;
        };
        if entry.fetching {
            return Lookup::Pending;
        }
        if entry.due <= now {
            entry.fetching = true;
            return Lookup::Fetch;
        }
        entry.known()
    }

    /// Inserts an answer and returns the new state: `Fresh` or `Unreachable`. Any caller may insert
    /// an answer. `status` is `None` if there was no complete response.
    pub fn insert(
        &mut self,
        origin: &Origin,
        status: Option<u16>,
        body: &[u8],
        now: Timestamp,
    ) -> Lookup {
        let robots = Robots::from_response(status, body, &self.agent);
        let mut entry = self.take(origin).unwrap_or_default();
        entry.fetching = false;
        if robots.availability() == Availability::Unreachable {
            entry.failures = entry.failures.saturating_add(1);
            entry.due = now + retry_after(entry.failures);
        } else {
            entry.failures = 0;
            entry.due = now + self.ttl;
            entry.copy = Some(Arc::new(robots));
        }
        let known = entry.known();
        self.put(origin.clone(), entry, now);
        known
    }

    /// Takes back a `Fetch` that the caller cancelled. The next lookup returns `Fetch` again, and
    /// no failure is counted.
    pub fn abandon(&mut self, origin: &Origin) {
        if let Some(entry) = self.entries.get_mut(origin) {
            entry.fetching = false;
            if !entry.is_answered() {
                self.entries.remove(origin);
            }
        }
    }

    /// Returns the number of origins that are known or being fetched.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn put(&mut self, origin: Origin, entry: Entry, now: Timestamp) {
        self.take(&origin);
        let bytes = entry.rule_bytes();
        self.make_room(bytes, now);
        self.rule_bytes += bytes;
        self.entries.insert(origin, entry);
    }

    fn take(&mut self, origin: &Origin) -> Option<Entry> {
        let entry = self.entries.remove(origin)?;
        self.rule_bytes -= entry.rule_bytes();
        Some(entry)
    }

    /// Makes room for one more answer with that many bytes of rules. If answers must be evicted, a
    /// share of all goes at once. Entries that are due soonest go first, because they were fetched
    /// longest ago.
    fn make_room(&mut self, bytes: usize, now: Timestamp) {
        let (most, most_bytes) = (self.capacity, self.capacity.saturating_mul(RULE_BYTES));
        let fits = |cache: &Self, most: usize, most_bytes: usize| {
            cache.entries.len() < most && cache.rule_bytes.saturating_add(bytes) <= most_bytes
        };
        if fits(self, most, most_bytes) {
            return;
        }
        let rank = |entry: &Entry| (entry.failures > 0 && entry.due > now, entry.due);
        let answers = self.entries.iter().filter(|(_, entry)| !entry.fetching);
        let mut ranked: Vec<_> = answers
            .map(|(origin, entry)| (rank(entry), origin.clone()))
            .collect();
        // The origin breaks ties, so the evicted entries do not depend on the map's order.
        ranked.sort_unstable();
        let (most, most_bytes) = (
            most - most / EVICTED_SHARE,
            most_bytes - most_bytes / EVICTED_SHARE,
        );
        for (_, origin) in ranked {
            if fits(self, most, most_bytes) {
                break;
            }
            self.take(&origin);
        }
    }
}

impl Entry {
    fn known(&self) -> Lookup {
        match &self.copy {
            Some(robots) => Lookup::Fresh(Arc::clone(robots)),
            None => Lookup::Unreachable { retry_at: self.due },
        }
    }

    fn rule_bytes(&self) -> usize {
        self.copy
            .as_ref()
            .map_or(0, |robots| robots.rules.iter().map(Rule::bytes).sum())
    }

    fn is_answered(&self) -> bool {
        self.copy.is_some() || self.failures > 0
    }
}

/// Returns the wait after this many consecutive failures: 1 min, 2, 4, … 1 h.
fn retry_after(failures: u32) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(RETRY_MAX)
}
