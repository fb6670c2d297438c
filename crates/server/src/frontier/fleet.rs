//! A frontier in Redis or Valkey, which several coordinators share.
//!
//! The engine knows the units, and each coordinator the permits of the units that it handed out. If
//! another coordinator accepts the words about a unit, the permits that these do not report end
//! with their leases.

mod put;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use politely::core::key::KeyKind;
use politely_api::wire::{DoneAnswer, FrontierCrawls};
use politely_frontier::{Answer, CrawlName, FrontierError, Moment, Settings, Token, ValidPage};
use politely_redis::frontier::{Offer, RedisFrontier};
use tokio::sync::Notify;

use super::done::{Words, merge, read, refused};
use super::look::body;
use super::order::Order;
use super::owners::Owners;
use super::take::{LOOK_MIN, Taken, Wish, acquire, look_until, refund};
use super::{FrontierOpenError, FrontierService, TEND_EVERY, moment};
use crate::coordinator::Coordinator;
use crate::watch::Worker;

/// The longest pause between two looks of a call that waits. Other coordinators may add pages.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The most domains that one look offers to the limiter.
const OFFERS_MAX: usize = 64;
/// The interval in seconds at which the numbers of all crawls are read, for metrics that are sent.
const SEEN_EVERY: u64 = 10;
/// The keys of each server that are compared with the schedule each time.
const MENDED: usize = 1_000;
/// The interval at which one of the coordinators does so. It is below [`TEND_EVERY`], so that a
/// coordinator that is alone does so each time.
const MEND_EVERY: Duration = Duration::from_millis(900);

/// A frontier in an engine. Clones are cheap and share all state.
#[derive(Clone)]
pub(crate) struct FleetFrontier(Arc<Inner>);

struct Inner {
    frontier: RedisFrontier,
    /// How the domain of a page follows from its URL.
    kind: KeyKind,
    owners: Owners,
    /// The numbers of all crawls when they were last read.
    seen: Mutex<FrontierCrawls>,
    /// Wakes calls that wait for a unit.
    changed: Notify,
    coordinator: Coordinator,
}

impl FleetFrontier {
    pub(super) fn connect(
        url: &str,
        settings: Settings,
        coordinator: &Coordinator,
    ) -> Result<Self, FrontierOpenError> {
        let kind = settings.kind;
        let seed = RandomState::new().hash_one(std::process::id());
        let connected = RedisFrontier::connect(url, settings, seed);
        let frontier = connected.map_err(|why| FrontierOpenError {
            // The URL may contain a password.
            place: "--store".to_owned(),
            why: why.to_string(),
        })?;
        Ok(Self(Arc::new(Inner {
            frontier,
            kind,
            owners: Owners::default(),
            seen: Mutex::default(),
            changed: Notify::new(),
            coordinator: coordinator.clone(),
        })))
    }

    fn now(&self) -> Moment {
        moment(&self.0.coordinator)
    }

    /// Runs a call to its end, even if the caller hangs up.
    async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, FrontierError>> + Send + 'static,
    ) -> Result<T, FrontierError> {
        let ended = tokio::spawn(work).await;
        ended.unwrap_or_else(|why| {
            Err(FrontierError::Unavailable(format!(
                "a call ended early: {why}"
            )))
        })
    }

    pub(super) fn key_kind(&self) -> KeyKind {
        self.0.kind
    }

    pub(super) fn in_engine(&self) -> &RedisFrontier {
        &self.0.frontier
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.0.owners
    }

    pub(super) async fn put(
        &self,
        crawl: CrawlName,
        pages: Vec<ValidPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        let answers = self.0.frontier.put_valid(&crawl, pages).await?;
        self.0.changed.notify_waiters();
        Ok(answers)
    }

    pub(super) async fn take(&self, wish: Wish) -> Result<Taken, FrontierError> {
        let (changed, coordinator) = (&self.0.changed, &self.0.coordinator);
        look_until(changed, coordinator, wish.wait, LOOK_MAX, || {
            let (service, looked) = (self.clone(), wish.clone());
            self.to_its_end(async move { service.look(&looked).await })
        })
        .await
    }

    /// Hands out the units that may leave now.
    async fn look(&self, wish: &Wish) -> Result<Taken, FrontierError> {
        let mut taken = Taken::new(FrontierService::fleet(self.clone()));
        let mut offered = 0;
        while taken.units.len() < usize::from(wish.units) && offered < OFFERS_MAX {
            let left = usize::from(wish.units) - taken.units.len();
            let offers = match (&wish.crawl, &wish.domain) {
                (Some(crawl), Some(domain)) => {
                    let offer = self.0.frontier.offer(crawl, domain).await?;
                    offer.into_iter().collect()
                }
                (crawl, _) => {
                    let found = self.0.frontier.offers(crawl.as_ref(), left).await;
                    match found {
                        Err(why) if taken.units.is_empty() => return Err(why),
                        Err(_) => break,
                        Ok(found) => {
                            taken.wake = found.wake;
                            found.offers
                        }
                    }
                }
            };
            if offers.is_empty() {
                break;
            }
            offered += offers.len();
            match self.take_offered(wish, offers, &mut taken).await {
                Err(why) if taken.units.is_empty() => return Err(why),
                Err(_) => break,
                Ok(()) if wish.domain.is_some() => break,
                Ok(()) => {}
            }
        }
        Ok(taken)
    }

    /// Takes offered domains with the permits of their pages, and puts the others off.
    async fn take_offered(
        &self,
        wish: &Wish,
        offers: Vec<Offer>,
        taken: &mut Taken,
    ) -> Result<(), FrontierError> {
        let Inner {
            frontier,
            coordinator,
            owners,
            ..
        } = &*self.0;
        let acquired = offers.iter().map(|offer| async {
            if taken.has(&offer.domain) {
                return Err(LOOK_MIN);
            }
            let pages = u64::from(wish.pages_per_unit).min(offer.pages) as u32;
            acquire(coordinator, wish, &offer.domain, pages).await
        });
        let acquired = join_all(acquired).await;
        let (mut late, mut wanted, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        for (offer, acquired) in offers.into_iter().zip(acquired) {
            match acquired {
                Ok(granted) => {
                    wanted.push((offer, wish.unit(granted.0.slots.into())));
                    permits.push(granted);
                }
                Err(wait) => late.push((offer, wait.max(LOOK_MIN))),
            }
        }
        let (mut result, units) = join(frontier.put_off(&late), frontier.take(&wanted)).await;
        let now = self.now().at;
        for (unit, granted) in units.into_iter().zip(permits) {
            match unit {
                Ok(Some(unit)) => taken.add((owners, now), wish, unit, Some(granted)),
                not_taken => {
                    refund(coordinator, &wish.worker, Some(granted));
                    result = result.and(not_taken.map(drop));
                }
            }
        }
        result
    }

    pub(super) fn give_up(&self, units: Vec<(CrawlName, Token)>) {
        let service = self.clone();
        tokio::spawn(async move {
            for (crawl, token) in units {
                if let Err(why) = service.0.frontier.drop_unit(&crawl, token).await {
                    tracing::debug!("a unit whose caller hung up ends with its lease: {why}");
                }
                service.0.owners.end(token, &service.0.coordinator);
            }
        });
    }

    pub(super) async fn done(
        &self,
        crawl: CrawlName,
        worker: Arc<Worker>,
        units: Vec<Words>,
    ) -> Result<Vec<DoneAnswer>, FrontierError> {
        let service = self.clone();
        self.to_its_end(async move {
            let answers = service.accept(&crawl, &worker, units).await;
            service.0.changed.notify_waiters();
            answers
        })
        .await
    }

    /// Accepts the words about units. Fails if the engine answered for none of them.
    async fn accept(
        &self,
        crawl: &CrawlName,
        worker: &Worker,
        units: Vec<Words>,
    ) -> Result<Vec<DoneAnswer>, FrontierError> {
        let now = self.now();
        let (mut answers, mut given, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for Words { unit, reports } in units {
            let lease = unit.lease_ms.map(|ms| Duration::from_millis(ms.into()));
            let token = unit.token;
            let read = read(&self.0.owners, worker, unit, &reports, now);
            let error = read.map(|(words, invalid)| {
                given.push((words, lease));
                rest.push((invalid, lease));
            });
            answers.push(DoneAnswer {
                token,
                reports,
                error: error.err(),
                ..DoneAnswer::default()
            });
        }
        let accepted = self.0.frontier.give_back(crawl, given).await;
        let accepted = accepted.into_iter().zip(rest);
        let open = answers.iter_mut().filter(|answer| answer.error.is_none());
        let mut unavailable = Vec::new();
        for (answer, (accepted, (invalid, lease))) in open.zip(accepted) {
            let token = Token(answer.token);
            match accepted {
                Ok(accepted) => {
                    answer.kept = accepted.kept;
                    answer.found = merge(invalid, accepted.answers);
                    if accepted.kept == 0 {
                        self.0.owners.end(token, &self.0.coordinator);
                    } else if let Some(lease) = lease {
                        self.0.owners.extend(token, now.at + lease);
                    }
                }
                Err(why) => {
                    answer.error = Some(refused(&why));
                    let is_away = matches!(why, FrontierError::Unavailable(_));
                    unavailable.extend(is_away.then_some(why));
                }
            }
        }
        let all_failed = unavailable.len() == answers.len();
        match unavailable.pop() {
            Some(why) if all_failed => Err(why),
            _ => Ok(answers),
        }
    }

    pub(super) async fn order(&self, crawl: CrawlName, order: Order) -> Result<(), FrontierError> {
        let frontier = &self.0.frontier;
        match order {
            Order::Purge(domain) => frontier.purge(&crawl, domain.as_deref()).await,
            Order::Delete(domain) => frontier.delete(&crawl, domain.as_deref()).await,
            Order::Block(domain, until) => frontier.block(&crawl, &domain, until).await,
            Order::Delay(domain, delay) => frontier.delay(&crawl, &domain, delay).await,
            Order::Limit(domain, most) => frontier.limit(&crawl, &domain, most).await,
            Order::Pause(is_paused) => frontier.pause(&crawl, is_paused).await,
        }?;
        self.0.changed.notify_waiters();
        Ok(())
    }

    pub(super) async fn forget(
        &self,
        crawl: CrawlName,
        domain: Option<String>,
        days: u32,
    ) -> Result<u64, FrontierError> {
        let age = Duration::from_hours(24) * days;
        let service = self.clone();
        self.to_its_end(async move {
            let frontier = &service.0.frontier;
            frontier.forget(&crawl, domain.as_deref(), age).await
        })
        .await
    }

    pub(super) async fn crawls(&self) -> Result<FrontierCrawls, FrontierError> {
        let (crawls, units) = self.0.frontier.crawls().await?;
        let crawls = crawls
            .iter()
            .map(|(name, counts, is_paused)| body(name, *counts, *is_paused));
        let crawls = FrontierCrawls {
            crawls: crawls.collect(),
            units,
        };
        self.0.seen.lock().clone_from(&crawls);
        Ok(crawls)
    }

    pub(super) fn seen_crawls(&self) -> FrontierCrawls {
        self.0.seen.lock().clone()
    }

    /// Compares some domains with the schedule, if no other coordinator did within a second.
    async fn mend(&self) -> Result<(), FrontierError> {
        if self.0.frontier.claim_mend(MEND_EVERY).await? {
            self.0.frontier.mend(MENDED).await?;
        }
        Ok(())
    }

    /// Repairs the schedule and forgets units that ended, until it is dropped.
    pub(super) async fn tend(self) {
        for second in 0_u64.. {
            if second.is_multiple_of(SEEN_EVERY) {
                let _ = self.crawls().await;
            }
            tokio::time::sleep(TEND_EVERY).await;
            let now = self.now().at;
            self.0.owners.retain(|_, owner| owner.ends > now);
            // The limiter reports an engine that does not answer.
            if let Err(why) = self.mend().await {
                tracing::debug!("cannot compare the schedule with the domains: {why}");
            }
        }
    }
}
