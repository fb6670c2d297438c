//! The validation of acquire requests.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::gate::HoldReason;
use politely::core::host::CRAWL_DELAY_MAX;
use politely::core::key::Key;
use politely::core::signal::Resource;
use politely::policy::Rule;
use politely::{
    AcquireRequest, Arrival, CrawlDelay, Keys, Plan, Reason, Refusal, Share, UnitCosts,
};
use politely_api::wire::{self, Cost, Item};
use smallvec::SmallVec;
use url::Url;

use super::Coordinator;
use super::names::Number;
use super::permits::Entry;
use super::report::error;
use super::rules::{check_labels, method_of};
use super::wishes::{Claim, Known, Wishes};
use crate::watch::Worker;

/// The time by which each step of priority moves an item forward in the queue.
const PRIORITY_STEP: Duration = Duration::from_secs(10);
/// The most time before a start for which a killed coordinator may have forgotten requests.
const UNKNOWN_BEFORE: Duration = Duration::from_secs(2);

/// The keys that an item names, and its URL.
type NamedKeys = (SmallVec<[Key; 1]>, Option<Url>);

/// One valid item of an acquire request.
pub(super) struct Wanted<'a> {
    pub(super) item: u32,
    pub(super) keys: SmallVec<[Key; 1]>,
    pub(super) ask: AcquireRequest,
    /// What the policy says about it.
    pub(super) plan: Option<Arc<Plan>>,
    /// Its place among the groups of its rule, if the rule has shares and this call made the place.
    pub(super) share: Option<Share>,
    /// The URL that the item names.
    pub(super) resource: Option<Resource>,
    /// Its arrival, which is its place in the queue. `None` if it is assigned when the item starts
    /// to wait.
    pub(super) arrival: Option<Arrival>,
    /// The claim on the item's id, if the caller gave an id.
    pub(super) claim: Option<Claim<'a>>,
    /// The latest start, from now.
    pub(super) patience: Duration,
    /// The end of the item's own Crawl-delay after the key's last request. Until then the item is
    /// not in the key's queue, because others do not have to keep a delay that no grant brought.
    pub(super) rests_until: Timestamp,
}

impl Wanted<'_> {
    /// Returns its keys, to which the policy was applied.
    pub(super) fn keys(&self) -> Keys<'_> {
        Keys::planned(&self.keys)
    }

    /// Returns why an item with its own Crawl-delay must wait.
    pub(super) fn rest(&self) -> Refusal {
        Refusal::waits(
            &self.keys[0],
            Reason::Hold(HoldReason::CrawlDelay),
            self.rests_until,
        )
    }
}

impl Coordinator {
    pub(super) fn understand(
        &self,
        worker: &Worker,
        item: u32,
        asked: &Item,
        wait: Duration,
    ) -> Result<Wanted<'_>, Quick> {
        let (mut keys, url) = self.named_keys(asked)?;
        check_labels(&asked.labels)?;
        let named = keys.len();
        let plan = self.plan(asked, worker.client(), url.as_ref(), &mut keys)?;
        let rule = plan.as_ref().and_then(|plan| plan.rule());
        let (cost, units) = costs(asked, rule)?;
        check(
            asked.slots >= 1 && asked.slots <= wire::SLOTS_MAX,
            "slots",
            "must be from 1 to 1,024",
        )?;
        check(asked.priority <= 9, "priority", "must be from 0 to 9")?;
        let crawl_delay = crawl_delay(asked)?;
        let ask = AcquireRequest {
            cost,
            units,
            bytes: asked.bytes,
            is_queued: asked.is_queued,
            crawl_delay,
            ..AcquireRequest::default()
        };
        for key in &keys {
            if let Some(limit) = self.0.limiter.never_fits(key, &ask) {
                let detail = format!(
                    "is more than the whole limit {limit} of {key}; split the request or raise \
                     the limit"
                );
                return Err(error("cost", &detail).into());
            }
        }
        let now = self.now();
        let owned = self
            .0
            .owners
            .take(worker.name(), &keys, &self.0.limiter, now);
        owned.map_err(|too_many| Quick::TooManyKeys(too_many.most))?;
        self.note_asked(&keys, now);
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let patience = asked.max_wait_ms.map_or(wait, ms);
        let ahead = patience.saturating_sub(wait).min(ms(wire::AHEAD_MAX_MS));
        let mut share = None;
        let mut placed = || {
            let earlier = PRIORITY_STEP * u32::from(asked.priority);
            let limiter = &self.0.limiter;
            let plan = plan.as_deref();
            share = plan.and_then(|plan| limiter.enter_share(plan, worker.client(), cost));
            let arrival = share.as_ref().map(Share::arrival);
            let arrival = arrival.unwrap_or_else(|| self.0.limiter.arrival());
            arrival.earlier(earlier)
        };
        let has_share = rule.is_some_and(|rule| !rule.share.is_empty());
        let (claim, arrival) = match &asked.id {
            None => (None, (asked.priority > 0 || has_share).then(placed)),
            Some(id) => {
                check(
                    !id.is_empty() && id.chars().count() <= wire::NAME_MAX,
                    "id",
                    "must be 1 to 128 characters long",
                )?;
                let wish = Wishes::hash(worker.name(), id);
                let print = fingerprint(asked, &keys[..named]);
                match self.0.wishes.ask(wish, print, self.now(), &mut placed) {
                    Known::Wanted(claim, arrival) => (Some(claim), Some(arrival)),
                    Known::AskedTwice => return Err(Quick::AskedTwice),
                    Known::Granted(number) if self.is_of(number, &keys[0]) => {
                        return Err(Quick::Granted(number));
                    }
                    Known::Cancelled => return Err(Quick::Cancelled),
                    Known::OtherItem | Known::Granted(_) => return Err(other_item(id).into()),
                }
            }
        };
        if let Some(share) = share.as_ref().filter(|_| claim.is_some()) {
            // The id keeps the place for the next call.
            share.keep();
        }
        let rests_until = crawl_delay.map_or(Timestamp::ZERO, |delay| {
            self.rest_after_the_last(&keys[0], delay)
        });
        Ok(Wanted {
            item,
            keys,
            ask: AcquireRequest {
                // A key with a Crawl-delay allows one request in flight.
                slots: if crawl_delay.is_some() {
                    1
                } else {
                    asked.slots
                },
                horizon: ahead,
                ..ask
            },
            plan,
            share,
            resource: asked.url.as_deref().map(Resource::of),
            arrival,
            claim,
            patience,
            rests_until,
        })
    }

    /// Lets the keys of `asked` follow their rules.
    pub(super) fn follow_rules(&self, worker: &Worker, asked: &Item) {
        if let Ok((mut keys, url)) = self.named_keys(asked) {
            let _ = self.plan(asked, worker.client(), url.as_ref(), &mut keys);
        }
    }

    /// Returns whether the permit belongs to `key`, or `true` if the permit is not known.
    fn is_of(&self, number: Number, key: &Key) -> bool {
        match self.0.permits.shard(number).get(number) {
            Some(Entry::Out(out)) => out.key == *key,
            _ => true,
        }
    }

    /// Returns the end of `delay` after the last request of `key`.
    ///
    /// A coordinator that has just started does not know the latest requests of an earlier run, so
    /// it assumes a recent one.
    fn rest_after_the_last(&self, key: &Key, delay: CrawlDelay) -> Timestamp {
        let known = self.0.limiter.explain(key);
        let last = known.map_or(Timestamp::ZERO, |known| known.last_grant);
        let began = self.0.watch.began + delay.pause.min(UNKNOWN_BEFORE);
        match last {
            Timestamp::ZERO => began,
            last => began.max(last + delay.pause.min(CRAWL_DELAY_MAX)),
        }
    }

    /// Returns the permit that an earlier answer granted for `asked`.
    pub(super) fn granted_before(&self, worker: &Worker, asked: &Item) -> Option<Number> {
        let id = asked.id.as_ref()?;
        let (keys, _) = self.named_keys(asked).ok()?;
        let print = fingerprint(asked, &keys);
        let number = self
            .0
            .wishes
            .granted(Wishes::hash(worker.name(), id), print)?;
        self.is_of(number, &keys[0]).then_some(number)
    }

    /// Returns the name of the first key of `asked`, for a span.
    pub(crate) fn key_name(&self, asked: &Item) -> Option<String> {
        let of_url = |url: &String| {
            let key = self.0.key.key(&Url::parse(url).ok()?, None, None);
            Some(key.ok()?.as_str().to_owned())
        };
        (asked.key.clone()).or_else(|| asked.url.as_ref().and_then(of_url))
    }

    /// Returns the keys that an item names, and its URL.
    fn named_keys(&self, asked: &Item) -> Result<NamedKeys, Quick> {
        let url = asked.url.as_deref().map(Url::parse).transpose();
        let url = url.map_err(|why| error("url", &why.to_string()))?;
        let first = match (&asked.key, &url) {
            (Some(key), _) => Key::parse(key).map_err(|why| error("key", &why.to_string()))?,
            (None, Some(url)) => {
                let key = self.0.key.key(url, None, None);
                key.map_err(|why| error("url", &why.to_string()))?
            }
            (None, None) => return Err(error("key", "a url or a key must be named").into()),
        };
        check(asked.also.len() <= wire::ALSO_MAX, "also", "at most 8 keys")?;
        let mut keys = SmallVec::from_buf([first]);
        for also in &asked.also {
            keys.push(Key::parse(also).map_err(|why| error("also", &why.to_string()))?);
        }
        Ok((keys, url))
    }
}

/// Answers that do not depend on the state of the key.
pub(super) enum Quick {
    Error(wire::Error),
    Granted(Number),
    AskedTwice,
    Cancelled,
    /// The client would have more keys than this.
    TooManyKeys(usize),
}

/// Hashes what an id stands for: the keys that the item names, its labels, cost, bytes and slots.
/// The keys of the policy do not count, because the policy may change. The result is never 0.
fn fingerprint(asked: &Item, keys: &[Key]) -> u64 {
    let hasher = foldhash::quality::FixedState::default();
    let names: SmallVec<[&str; 2]> = keys.iter().map(Key::as_str).collect();
    let units: SmallVec<[(&str, u64); 1]> = asked.cost.units().collect();
    let cost = (asked.cost.requests(), &units[..]);
    let item = (&names[..], &asked.labels, cost, asked.slots, asked.bytes);
    hasher.hash_one(item).max(1)
}

fn other_item(id: &str) -> wire::Error {
    let detail = format!(
        "\"{id}\" was asked for another key, label, cost, bytes or slot count; use a new id for \
         this item"
    );
    error("id", &detail)
}

impl From<wire::Error> for Quick {
    fn from(error: wire::Error) -> Self {
        Self::Error(error)
    }
}

fn check(holds: bool, field: &str, rule: &str) -> Result<(), Quick> {
    if holds {
        Ok(())
    } else {
        Err(error(field, rule).into())
    }
}

/// Returns the tokens of the rate and the amounts of named units: those of the item, or else those
/// of its rule.
fn costs(asked: &Item, rule: Option<&Rule>) -> Result<(u16, UnitCosts), Quick> {
    let cost = &asked.cost;
    let requests = cost.requests().filter(|cost| (1..=1_000).contains(cost));
    let requests = requests.ok_or_else(|| match cost {
        Cost::Tokens(_) => error("cost", "must be from 1 to 1,000"),
        Cost::Units(_) => error("cost.requests", "must be from 1 to 1,000"),
    })?;
    if cost.units().any(|(name, _)| name == "bytes") {
        return Err(error("cost.bytes", "give bytes in the field `bytes`").into());
    }
    let units = UnitCosts::new(cost.units()).map_err(|why| error("cost", &why.to_string()))?;
    let method = method_of(asked.method.as_deref());
    let method = method.ok_or_else(|| error("method", "is not a method"))?;
    let Some(rule) = rule.filter(|rule| !rule.costs.is_empty()) else {
        return Ok((requests, units));
    };
    let requests = match cost {
        Cost::Tokens(1) => rule.costs.requests(&method).unwrap_or(requests),
        _ => requests,
    };
    Ok((requests, units.or(&rule.costs.units(&method))))
}

/// Returns the Crawl-delay that the worker read in robots.txt.
fn crawl_delay(asked: &Item) -> Result<Option<CrawlDelay>, Quick> {
    let within = |ms: Option<u64>, most: u64| ms.is_none_or(|ms| (1..=most).contains(&ms));
    check(
        within(asked.crawl_delay_ms, wire::CRAWL_DELAY_MAX_MS),
        "crawl_delay_ms",
        "must be from 1 to 86,400,000",
    )?;
    check(
        within(asked.crawl_delay_fresh_ms, wire::CRAWL_DELAY_FRESH_MAX_MS),
        "crawl_delay_fresh_ms",
        "must be from 1 to 86,400,000",
    )?;
    let fresh_ms = asked
        .crawl_delay_fresh_ms
        .unwrap_or(wire::CRAWL_DELAY_FRESH_MAX_MS);
    Ok(asked.crawl_delay_ms.map(|ms| CrawlDelay {
        pause: Duration::from_millis(ms),
        fresh: Duration::from_millis(fresh_ms),
    }))
}
