//! Who waits for which keys here, and who of them is being asked for.
//!
//! Callers of the same keys stand in one line. Of each line only the first few are asked for: the coordinator keeps
//! its own lines, and a thousand tasks that wait for one host would make every call a thousand items long.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use politely_core::host::{Ask, CrawlDelay};
use politely_core::key::Key;
use tokio::sync::oneshot;

use super::claim::Claim;
use crate::asked::AcquireError;
use crate::wire::Item;

/// Of one line so many are asked for at a time: as many as leave within a round trip, and few enough to be repeated.
const FRONT: usize = 32;

/// The keys of one request, the first of which hears its outcome.
pub(super) type KeySet = Arc<[Key]>;
/// How a caller hears.
pub(super) type Answer = oneshot::Sender<Result<Claim, AcquireError>>;

/// All lines.
#[derive(Default)]
pub(super) struct Lines {
    of: HashMap<KeySet, Line, foldhash::fast::RandomState>,
    open: HashMap<u64, Open, foldhash::fast::RandomState>,
    next: u64,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<u64>,
    asked: usize,
}

/// One permit wanted.
pub(super) struct Open {
    pub(super) keys: KeySet,
    ask: Ask,
    /// The number that its id is made of: another after the coordinator has done with the first.
    name: u64,
    pub(super) who: Who,
}

/// Who wants it.
pub(super) enum Who {
    Caller(Answer),
    /// Whoever calls `try_acquire` next.
    Wish,
}

impl Open {
    fn is_given_up(&self) -> bool {
        matches!(&self.who, Who::Caller(answer) if answer.is_closed())
    }
}

impl Lines {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Joins the end of the line of `keys`.
    pub(super) fn join(&mut self, keys: KeySet, ask: Ask, who: Who) -> u64 {
        let number = self.next;
        self.next += 1;
        let line = self.of.entry(Arc::clone(&keys)).or_default();
        line.waiting.push_back(number);
        let open = Open {
            keys,
            ask,
            name: number,
            who,
        };
        self.open.insert(number, open);
        number
    }

    /// Is anybody there to be asked for?
    pub(super) fn any_waiting(&self) -> bool {
        let asks = |line: &Line| !line.waiting.is_empty() && line.asked < FRONT;
        self.of.values().any(asks)
    }

    /// Takes up to `most` out of the lines' heads to be asked for, by number and item; `delay` knows the keys' Crawl-delays.
    pub(super) fn take(
        &mut self,
        most: usize,
        prefix: &str,
        delay: impl Fn(&Key) -> Option<CrawlDelay>,
    ) -> (Vec<u64>, Vec<Item>) {
        let (mut numbers, mut items) = (Vec::new(), Vec::new());
        self.of.retain(|keys, line| {
            while line.asked < FRONT && numbers.len() < most {
                let Some(number) = line.waiting.pop_front() else {
                    break;
                };
                match self.open.get(&number) {
                    Some(open) if !open.is_given_up() => {
                        line.asked += 1;
                        numbers.push(number);
                        items.push(item(keys, open, prefix, delay(&keys[0])));
                    }
                    _ => {
                        self.open.remove(&number);
                    }
                }
            }
            line.asked > 0 || !line.waiting.is_empty()
        });
        (numbers, items)
    }

    /// The key whose outcome is reported.
    pub(super) fn key(&self, number: u64) -> Option<&Key> {
        self.open.get(&number).map(|open| &open.keys[0])
    }

    /// It was asked for and goes back to its line's head.
    pub(super) fn back(&mut self, number: u64) {
        let Some(open) = self.open.get(&number) else {
            return;
        };
        if let Some(line) = self.of.get_mut(&open.keys) {
            line.asked -= 1;
            line.waiting.push_front(number);
        }
    }

    /// Goes back under another id: what was said of the first is over.
    pub(super) fn anew(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.name = self.next;
            self.next += 1;
        }
        self.back(number);
    }

    /// It was asked for and has its answer.
    pub(super) fn served(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if let Some(line) = self.of.get_mut(&open.keys) {
            line.asked -= 1;
        }
        Some(open)
    }

    /// Nobody wants it any more; one that is being asked for stays until its answer comes.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let Some(open) = self.open.get(&number) else {
            return true;
        };
        let Some(line) = self.of.get_mut(&open.keys) else {
            return true;
        };
        let Some(at) = line.waiting.iter().position(|other| *other == number) else {
            return false;
        };
        line.waiting.remove(at);
        self.open.remove(&number);
        true
    }

    /// Everybody leaves.
    pub(super) fn drain(&mut self) -> Vec<Open> {
        self.of.clear();
        self.open.drain().map(|(_, open)| open).collect()
    }
}

fn item(keys: &KeySet, open: &Open, prefix: &str, delay: Option<CrawlDelay>) -> Item {
    let ahead = open.ask.horizon.as_millis() as u32;
    // Rounded up: nobody comes early.
    let pause = |delay: CrawlDelay| delay.pause.as_nanos().div_ceil(1_000_000) as u64;
    Item {
        id: Some(format!("{prefix}{:x}", open.name)),
        key: Some(keys[0].as_str().to_owned()),
        also: keys[1..]
            .iter()
            .map(|key| key.as_str().to_owned())
            .collect(),
        cost: open.ask.cost,
        bytes: open.ask.bytes,
        max_wait_ms: (ahead > 0).then_some(ahead),
        crawl_delay_ms: delay.map(pause),
        crawl_delay_fresh_ms: delay.map(|delay| delay.fresh.as_millis() as u64),
        slots: 1,
        ..Item::default()
    }
}
