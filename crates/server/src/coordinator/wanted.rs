//! What an item wants: understood, or what is wrong with it.

use std::time::Duration;

use politely::core::key::Key;
use politely::wire::{self, Item};
use politely::{Ask, CrawlDelay, Turn};
use smallvec::SmallVec;
use url::Url;

use super::Coordinator;
use super::names::Number;
use super::report::error;
use super::wishes::{Claim, Known, Wishes};
use crate::watch::Worker;

/// What a step of priority is worth in line.
const PRIORITY_STEP: Duration = Duration::from_secs(10);

/// One item, understood.
pub(super) struct Wanted<'a> {
    pub(super) item: u32,
    pub(super) keys: SmallVec<[Key; 1]>,
    pub(super) ask: Ask,
    /// Where it stands in line, if that is known before it has to stand there.
    pub(super) turn: Option<Turn>,
    /// If it has a name.
    pub(super) claim: Option<Claim<'a>>,
    /// It may start no later than this from now.
    pub(super) patience: Duration,
}

impl Coordinator {
    pub(super) fn understand(
        &self,
        worker: &Worker,
        item: u32,
        asked: &Item,
        wait: Duration,
    ) -> Result<Wanted<'_>, Quick> {
        let keys = self.keys_of(asked)?;
        check(
            asked.cost >= 1 && asked.cost <= 1_000,
            "cost",
            "must be from 1 to 1,000",
        )?;
        check(
            asked.slots >= 1 && asked.slots <= wire::SLOTS_MAX,
            "slots",
            "must be from 1 to 1,024",
        )?;
        check(asked.priority <= 9, "priority", "must be from 0 to 9")?;
        let crawl_delay = crawl_delay(asked)?;
        let patience = asked
            .max_wait_ms
            .map_or(wait, |ms| Duration::from_millis(u64::from(ms)));
        let ahead = patience
            .saturating_sub(wait)
            .min(Duration::from_millis(u64::from(wire::AHEAD_MAX_MS)));
        let placed = || {
            let earlier = PRIORITY_STEP * u32::from(asked.priority);
            self.0.limiter.turn().earlier(earlier)
        };
        let (claim, turn) = match &asked.id {
            None => (None, (asked.priority > 0).then(placed)),
            Some(id) => {
                check(
                    !id.is_empty() && id.chars().count() <= wire::NAME_MAX,
                    "id",
                    "must be 1 to 128 characters long",
                )?;
                let wish = Wishes::hash(worker.name(), id);
                match self.0.wishes.ask(wish, self.now(), placed) {
                    Known::Wanted(claim, turn) => (Some(claim), Some(turn)),
                    Known::AskedTwice => return Err(Quick::AskedTwice),
                    Known::Granted(number) => return Err(Quick::Granted(number)),
                }
            }
        };
        if let Some(delay) = crawl_delay {
            // Where there is no room for the key, who asks for a permit is told so.
            let _ = self.0.limiter.crawl_delay(&keys[0], delay);
        }
        Ok(Wanted {
            item,
            keys,
            ask: Ask {
                slots: asked.slots,
                horizon: ahead,
                cost: asked.cost,
                bytes: asked.bytes,
            },
            turn,
            claim,
            patience,
        })
    }

    fn keys_of(&self, asked: &Item) -> Result<SmallVec<[Key; 1]>, Quick> {
        let first = match (&asked.url, &asked.key) {
            (Some(url), None) => {
                let url = Url::parse(url).map_err(|why| error("url", &why.to_string()))?;
                self.0
                    .key
                    .key(&url, None, None)
                    .map_err(|why| error("url", &why.to_string()))?
            }
            (None, Some(key)) => Key::parse(key).map_err(|why| error("key", &why.to_string()))?,
            (Some(_), Some(_)) => return Err(error("key", "there is a url as well").into()),
            (None, None) => return Err(error("key", "a url or a key must be named").into()),
        };
        check(asked.also.len() <= wire::ALSO_MAX, "also", "at most 8 keys")?;
        let mut keys = SmallVec::from_buf([first]);
        for also in &asked.also {
            keys.push(Key::parse(also).map_err(|why| error("also", &why.to_string()))?);
        }
        Ok(keys)
    }
}

/// Items answered before anything is asked of their key.
pub(super) enum Quick {
    Error(wire::Error),
    Granted(Number),
    AskedTwice,
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

/// What the worker read in robots.txt.
fn crawl_delay(asked: &Item) -> Result<Option<CrawlDelay>, Quick> {
    let within = |ms: Option<u64>, most: u64| ms.is_none_or(|ms| (1..=most).contains(&ms));
    check(
        within(asked.crawl_delay_ms, wire::CRAWL_DELAY_MAX_MS),
        "crawl_delay_ms",
        "must be from 1 to 2,592,000,000",
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
