//! Crawl-delays that were read here. They are sent with every acquire request for their keys.

use std::time::Duration;

use hashbrown::HashMap;
use politely_core::Timestamp;
use politely_core::host::CrawlDelay;
use politely_core::key::Key;

/// The maximum number of keys with a Crawl-delay, about 100 bytes each. Beyond it all are
/// forgotten, until they are set again.
const KEYS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Delays(HashMap<Key, Delay, foldhash::fast::RandomState>);

struct Delay {
    pause: Duration,
    until: Timestamp,
}

impl Delays {
    /// Sets the Crawl-delay of `key`. The largest one applies as long as it is fresh, as in the
    /// coordinator.
    pub(super) fn set(&mut self, key: &Key, given: CrawlDelay, now: Timestamp) {
        let larger = |known: &Delay| known.until > now && known.pause > given.pause;
        if self.0.get(key).is_some_and(larger) {
            return;
        }
        if self.0.len() >= KEYS_MAX {
            self.0.clear();
        }
        let delay = Delay {
            pause: given.pause,
            until: now + given.fresh,
        };
        self.0.insert(key.clone(), delay);
    }

    /// Returns the Crawl-delay of `key`, if it is still fresh.
    pub(super) fn of(&self, key: &Key, now: Timestamp) -> Option<CrawlDelay> {
        let Delay { pause, until } = self.0.get(key)?;
        let fresh = until.since(now);
        (!fresh.is_zero()).then_some(CrawlDelay {
            pause: *pause,
            fresh,
        })
    }
}
