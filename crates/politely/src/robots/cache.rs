//! What each origin's robots.txt said, until it has to be asked again.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use politely_core::Timestamp;

use super::pattern::Rule;
use super::{Answer, Origin, Robots};

/// The longest a copy is used without asking again: 24 h (RFC 9309, 2.4).
pub const MAX_TTL: Duration = Duration::from_hours(24);

/// The wait after a first unreachable robots.txt: 1 min. A restart or a hiccup is over by then.
pub const RETRY_FIRST: Duration = Duration::from_mins(1);

/// The longest wait, reached by doubling: 1 h. Cheap for a host that is down for days, and soon enough
/// for one that comes back.
pub const RETRY_MAX: Duration = Duration::from_hours(1);

/// Over capacity, one entry in this many goes at once: an eviction looks at all of them.
const EVICTED_SHARE: usize = 16;

/// Bytes of rules for each origin of the capacity, on average. A common file has well below 100 rules of
/// 60 B for `*`; a hostile one fills 500 KiB with shortest rules, which take some MB, and its owner can
/// name as many hosts as he likes.
const RULE_BYTES: usize = 4 * 1024;

/// The rules of many origins for one product token.
///
/// Bounded: at most `capacity` answers and 4 KiB of rules for each on average, so about 4.3 KiB x
/// `capacity` at the worst (or one file, if that is more). The oldest go first, but an origin that is
/// backing off goes last, since to forget it is to ask it again too early. Entries being fetched come on
/// top; their number is the caller's fetches in flight. Rules are kept parsed, of our group only.
#[derive(Debug)]
pub struct RobotsCache {
    pub(super) agent: String,
    capacity: usize,
    pub(super) ttl: Duration,
    pub(super) entries: HashMap<Origin, Entry, RandomState>,
    /// Of all rules in `entries`.
    rule_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The last definite answer, if there ever was one.
    pub(super) copy: Option<Arc<Robots>>,
    /// When to ask (again).
    pub(super) due: Timestamp,
    /// Unreachable answers since the last definite one.
    pub(super) failures: u32,
    pub(super) fetching: bool,
}

/// What the cache knows of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// These rules are in force.
    Fresh(Arc<Robots>),
    /// Fetch it now, and [`insert`](RobotsCache::insert) what came or [`abandon`](RobotsCache::abandon):
    /// until then everyone else gets `Pending`.
    Fetch,
    /// Somebody is fetching it.
    Pending,
    /// Not known, so nothing is allowed before another attempt.
    Unreachable {
        /// When the next lookup says `Fetch`.
        retry_at: Timestamp,
    },
}

impl RobotsCache {
    /// A cache for our product token `agent` (see [`Robots::from_response`]); `capacity` in origins, at
    /// least 1; `ttl` at most [`MAX_TTL`], the usual choice.
    pub fn new(agent: &str, capacity: usize, ttl: Duration) -> Self {
        Self {
            agent: super::product_token(agent).to_ascii_lowercase(),
            capacity: capacity.max(1),
            ttl: ttl.min(MAX_TTL),
            entries: HashMap::default(),
            rule_bytes: 0,
        }
    }

    /// What is known of `origin`. Hands out `Fetch` to one caller at a time.
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

    /// Takes in an answer, the fetcher's or anybody's, and says what holds from now on: `Fresh` or
    /// `Unreachable`. `status` is `None` if there was no whole answer.
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
        if robots.answer() == Answer::Unreachable {
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

    /// Takes back a `Fetch` that came to nothing on our side (cancelled, shutting down): the next lookup
    /// hands it out again, and no failure is counted.
    pub fn abandon(&mut self, origin: &Origin) {
        if let Some(entry) = self.entries.get_mut(origin) {
            entry.fetching = false;
            if !entry.is_answered() {
                self.entries.remove(origin);
            }
        }
    }

    /// Origins known or being fetched.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is nothing known?
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

    /// Makes room for one more answer with that many bytes of rules, and if answers have to go for it,
    /// then a share of all. Those that are due soonest go first: they were fetched longest ago.
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
        // The origin breaks ties: the same entries go, whatever the map's order.
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

/// 1 min, 2, 4, … 1 h after this many failures in a row.
fn retry_after(failures: u32) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(RETRY_MAX)
}
