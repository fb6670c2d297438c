//! The queues of callers, by key set, and which of the callers are in a call.
//!
//! Callers of the same keys wait in one queue. Only the first few of each queue are sent to the
//! coordinator, which has queues of its own. Otherwise a thousand tasks that wait for one host
//! would make every call a thousand items long.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use http::Method;
use politely_api::wire::{Cost, Item};
use politely_core::host::{AcquireRequest, CrawlDelay};
use politely_core::key::Key;
use tokio::sync::oneshot;
use url::{Position, Url};

use super::outcome::amounts;
use super::permit_guard::CoordinatorGuard;
use crate::backend::operations::Head;
use crate::backend::prefetch::KeySet;
use crate::error::AcquireError;
use crate::labels::Labels;

/// The maximum number of acquire requests of one queue in calls at a time. That many can leave
/// within a round trip, and they are few enough to be repeated.
const FRONT: usize = 32;

/// The length of the longest URL that is sent, in bytes.
const URL_MAX: usize = 8_192;

/// The channel to a caller.
pub(super) type ReplySender = oneshot::Sender<Result<CoordinatorGuard, AcquireError>>;

/// All queues.
#[derive(Default)]
pub(super) struct Lines {
    of: HashMap<KeySet, Line, foldhash::fast::RandomState>,
    open: HashMap<u64, Open, foldhash::fast::RandomState>,
    next: u64,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<u64>,
    in_calls: usize,
}

/// An acquire request without an answer.
pub(super) struct Open {
    pub(super) keys: KeySet,
    ask: AcquireRequest,
    /// The method of the request, unless it is GET or unknown.
    method: Option<Method>,
    /// The URL of the request without its query, if it is known.
    url: Option<String>,
    labels: Option<Labels>,
    priority: u8,
    /// The number in its idempotency key. It changes once the coordinator has used up the first
    /// key.
    name: u64,
    pub(super) receiver: Receiver,
}

/// The receiver of the permit.
pub(super) enum Receiver {
    Caller(ReplySender),
    /// A prefetch for the next call of `try_acquire`.
    Prefetch,
}

impl Open {
    fn is_given_up(&self) -> bool {
        matches!(&self.receiver, Receiver::Caller(sender) if sender.is_closed())
    }

    /// Returns the item of the coordinator's API.
    pub(super) fn item(&self, prefix: &str, delay: Option<CrawlDelay>) -> Item {
        let ahead = self.ask.horizon.as_millis() as u32;
        // Rounded up, so that no request leaves early.
        let pause = |delay: CrawlDelay| delay.pause.as_nanos().div_ceil(1_000_000) as u64;
        Item {
            id: Some(format!("{prefix}{:x}", self.name)),
            key: Some(self.keys[0].as_str().to_owned()),
            also: self.keys[1..]
                .iter()
                .map(|key| key.as_str().to_owned())
                .collect(),
            method: self.method.as_ref().map(ToString::to_string),
            url: self.url.clone(),
            labels: (self.labels.iter().flat_map(Labels::iter))
                // The coordinator knows the name of each client.
                .filter(|(name, _)| *name != Labels::CLIENT)
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            cost: cost(&self.ask),
            bytes: self.ask.bytes,
            priority: self.priority,
            max_wait_ms: (ahead > 0).then_some(ahead),
            crawl_delay_ms: delay.map(pause),
            crawl_delay_fresh_ms: delay.map(|delay| delay.fresh.as_millis() as u64),
            slots: 1,
            ..Item::default()
        }
    }
}

impl Lines {
    /// Returns the number of acquire requests.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Adds an acquire request at the end of the queue of `keys`, and returns its number.
    pub(super) fn join(
        &mut self,
        keys: KeySet,
        ask: AcquireRequest,
        head: Option<Head<'_>>,
        receiver: Receiver,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let line = self.of.entry(Arc::clone(&keys)).or_default();
        line.waiting.push_back(number);
        let open = Open {
            keys,
            ask,
            method: (head.map(|head| head.method.clone())).filter(|method| *method != Method::GET),
            url: head.and_then(|head| without_query(head.url)),
            labels: head.and_then(|head| head.labels.cloned()),
            priority: head.map_or(0, |head| head.priority),
            name: number,
            receiver,
        };
        self.open.insert(number, open);
        number
    }

    /// Returns whether an acquire request can be sent.
    pub(super) fn any_waiting(&self) -> bool {
        let can_send = |line: &Line| !line.waiting.is_empty() && line.in_calls < FRONT;
        self.of.values().any(can_send)
    }

    /// Takes up to `most` acquire requests from the heads of the queues, and returns their numbers
    /// and items.
    ///
    /// `delay` returns the Crawl-delay of a key.
    pub(super) fn take(
        &mut self,
        most: usize,
        prefix: &str,
        delay: impl Fn(&Key) -> Option<CrawlDelay>,
    ) -> (Vec<u64>, Vec<Item>) {
        let (mut numbers, mut items) = (Vec::new(), Vec::new());
        self.of.retain(|keys, line| {
            while line.in_calls < FRONT && numbers.len() < most {
                let Some(number) = line.waiting.pop_front() else {
                    break;
                };
                match self.open.get(&number) {
                    Some(open) if !open.is_given_up() => {
                        line.in_calls += 1;
                        numbers.push(number);
                        items.push(open.item(prefix, delay(&keys[0])));
                    }
                    _ => {
                        self.open.remove(&number);
                    }
                }
            }
            line.in_calls > 0 || !line.waiting.is_empty()
        });
        (numbers, items)
    }

    /// Returns the keys of an acquire request. The outcome is reported to the first.
    pub(super) fn keys(&self, number: u64) -> Option<&KeySet> {
        self.open.get(&number).map(|open| &open.keys)
    }

    /// Takes the acquire requests of one key that `is_due` allows to leave, from the heads of the
    /// queues.
    pub(super) fn take_due(
        &mut self,
        mut is_due: impl FnMut(&Key, &AcquireRequest) -> bool,
    ) -> Vec<Open> {
        let mut taken = Vec::new();
        for (keys, line) in &mut self.of {
            let [key] = &keys[..] else { continue };
            while let Some(number) = line.waiting.front() {
                match self.open.get(number) {
                    Some(open) if !open.is_given_up() => {
                        if !is_due(key, &open.ask) {
                            break;
                        }
                        taken.extend(self.open.remove(number));
                    }
                    _ => {
                        self.open.remove(number);
                    }
                }
                line.waiting.pop_front();
            }
        }
        taken
    }

    /// Returns an acquire request from a call to the head of its queue.
    pub(super) fn back(&mut self, number: u64) {
        let Some(open) = self.open.get(&number) else {
            return;
        };
        if let Some(line) = self.of.get_mut(&open.keys) {
            line.in_calls -= 1;
            line.waiting.push_front(number);
        }
    }

    /// Returns an acquire request to its queue with a new idempotency key. The answer to the old
    /// key is final.
    pub(super) fn rename(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.name = self.next;
            self.next += 1;
        }
        self.back(number);
    }

    /// Removes an acquire request that was answered.
    pub(super) fn served(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if let Some(line) = self.of.get_mut(&open.keys) {
            line.in_calls -= 1;
        }
        Some(open)
    }

    /// Removes an acquire request, and returns whether it is gone. A request that is in a call
    /// stays until its answer comes.
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

    /// Removes all acquire requests.
    pub(super) fn drain(&mut self) -> Vec<Open> {
        self.of.clear();
        self.open.drain().map(|(_, open)| open).collect()
    }
}

/// Returns `url` without its credentials, query and fragment, for the patterns of the coordinator's
/// policy. Returns `None` if the result is longer than [`URL_MAX`].
fn without_query(url: &Url) -> Option<String> {
    let rest = &url[Position::BeforeHost..Position::AfterPath];
    (rest.len() <= URL_MAX).then(|| format!("{}://{rest}", url.scheme()))
}

fn cost(ask: &AcquireRequest) -> Cost {
    if ask.units.is_empty() {
        return Cost::Tokens(ask.cost);
    }
    let requests = ("requests".to_owned(), u64::from(ask.cost));
    Cost::Units(
        std::iter::once(requests)
            .chain(amounts(&ask.units))
            .collect(),
    )
}
