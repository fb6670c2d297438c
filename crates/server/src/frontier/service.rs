//! The frontier of a coordinator: its own, or one that it shares with others.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use politely::core::key::{Key, KeyKind};
use politely_api::wire::{DoneAnswer, FrontierCrawls};
use politely_frontier::{Answer, CrawlName, FrontierError, Settings, Token, ValidPage};

use super::done::Words;
use super::fleet::FleetFrontier;
use super::order::Order;
use super::put::{Item, Stored};
use super::take::{Taken, Wish};
use super::{EmbeddedFrontier, FrontierOpenError};
use crate::coordinator::Coordinator;
use crate::watch::Worker;

/// The frontier of a coordinator. Clones are cheap and share all state.
#[derive(Clone)]
pub struct FrontierService(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    /// In a folder of this coordinator.
    Embedded(EmbeddedFrontier),
    /// In an engine.
    Fleet(FleetFrontier),
}

/// Makes one call of the frontier, of whichever kind it is.
macro_rules! call {
    ($service:expr, $frontier:ident => $call:expr) => {
        match &$service.0 {
            Kind::Embedded($frontier) => $call,
            Kind::Fleet($frontier) => $call,
        }
    };
}

impl fmt::Debug for FrontierService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrontierService")
    }
}

impl FrontierService {
    /// Opens the frontier in `folder`, which is created if it is missing. Its units get the permits
    /// of `coordinator`.
    ///
    /// # Errors
    /// The folder cannot be used, is in use, or is damaged. The keys of `coordinator` are shared
    /// through an engine.
    pub fn open(
        folder: &Path,
        settings: Settings,
        coordinator: &Coordinator,
    ) -> Result<Self, FrontierOpenError> {
        let opened = EmbeddedFrontier::open(folder, settings, coordinator)?;
        Ok(Self(Kind::Embedded(opened)))
    }

    /// Uses the frontier in the Redis or Valkey of `url`, which other coordinators may use too. It
    /// connects at the first call.
    ///
    /// # Errors
    /// The URL is not one of Redis or Valkey, or its `ca` cannot be read.
    pub fn shared(
        url: &str,
        settings: Settings,
        coordinator: &Coordinator,
    ) -> Result<Self, FrontierOpenError> {
        Ok(Self(Kind::Fleet(FleetFrontier::connect(
            url,
            settings,
            coordinator,
        )?)))
    }

    pub(super) const fn embedded(frontier: EmbeddedFrontier) -> Self {
        Self(Kind::Embedded(frontier))
    }

    pub(super) const fn fleet(frontier: FleetFrontier) -> Self {
        Self(Kind::Fleet(frontier))
    }

    /// Returns how the domain of a page follows from its URL.
    pub(crate) fn key_kind(&self) -> KeyKind {
        call!(self, frontier => frontier.key_kind())
    }

    /// Adds pages, and returns one answer for each. The pages are stored then.
    pub(crate) async fn put(
        &self,
        crawl: CrawlName,
        pages: Vec<ValidPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        call!(self, frontier => frontier.put(crawl, pages).await)
    }

    /// Adds pages that were found, and notes pages that were visited. All are stored then. Returns
    /// one answer per page, and the reports to the keys, each with its worker.
    pub(crate) async fn put_items(&self, items: Vec<(CrawlName, Item)>) -> Stored {
        call!(self, frontier => frontier.put_items(items).await)
    }

    /// Hands out units of work. Waits up to `wish.wait` until a domain may be handed out.
    pub(crate) async fn take(&self, mut wish: Wish) -> Result<Taken, FrontierError> {
        wish.domain = wish.domain.map(as_key);
        call!(self, frontier => frontier.take(wish).await)
    }

    /// Returns the pages of units whose caller hung up.
    pub(super) fn give_up(&self, units: Vec<(CrawlName, Token)>) {
        call!(self, frontier => frontier.give_up(units));
    }

    /// Accepts the words about some units. They are stored when this returns.
    pub(crate) async fn done(
        &self,
        crawl: CrawlName,
        worker: Arc<Worker>,
        units: Vec<Words>,
    ) -> Result<Vec<DoneAnswer>, FrontierError> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        call!(self, frontier => frontier.done(crawl, worker, units).await)
    }

    /// Carries out an order. It is stored when this returns.
    pub(crate) async fn order(&self, crawl: CrawlName, order: Order) -> Result<(), FrontierError> {
        let order = order.of_domain(as_key);
        call!(self, frontier => frontier.order(crawl, order).await)
    }

    /// Sets the pause of all domains between two units of work, until the coordinator ends.
    pub(crate) fn set_spacing(&self, pause: Duration) -> Result<(), FrontierError> {
        match &self.0 {
            Kind::Embedded(frontier) => {
                frontier.set_spacing(pause);
                Ok(())
            }
            Kind::Fleet(_) => {
                let what = "set the pause of all its domains; start all coordinators with \
                            --frontier-spacing";
                Err(FrontierError::NotShared(what))
            }
        }
    }

    /// Forgets pages that were added more than `days` ago, of a domain or of the whole crawl, and
    /// returns how many.
    pub(crate) async fn forget(
        &self,
        crawl: CrawlName,
        domain: Option<String>,
        days: u32,
    ) -> Result<u64, FrontierError> {
        call!(self, frontier => frontier.forget(crawl, domain.map(as_key), days).await)
    }

    /// Returns the numbers of all crawls.
    pub(crate) async fn crawls(&self) -> Result<FrontierCrawls, FrontierError> {
        match &self.0 {
            Kind::Embedded(frontier) => Ok(frontier.crawls()),
            Kind::Fleet(frontier) => frontier.crawls().await,
        }
    }

    /// Returns the numbers of all crawls at once. Those of a shared frontier are some seconds old.
    pub(crate) fn seen_crawls(&self) -> FrontierCrawls {
        match &self.0 {
            Kind::Embedded(frontier) => frontier.crawls(),
            Kind::Fleet(frontier) => frontier.seen_crawls(),
        }
    }

    /// Frees the space of deleted pages and forgets units that ended, until it is dropped.
    pub(crate) async fn tend(self) {
        match self.0 {
            Kind::Embedded(frontier) => frontier.tend().await,
            Kind::Fleet(frontier) => frontier.tend().await,
        }
    }

    /// Writes everything to the disk. Returns whether that succeeded.
    pub(crate) async fn save(&self) -> bool {
        match &self.0 {
            Kind::Embedded(frontier) => frontier.save().await,
            Kind::Fleet(_) => true,
        }
    }

    /// Returns why all calls fail until an operator acts, in one line.
    pub(crate) fn last_error(&self) -> Option<String> {
        match &self.0 {
            Kind::Embedded(frontier) => frontier.last_error(),
            Kind::Fleet(_) => None,
        }
    }
}

/// Returns the name of a domain as a page's key is stored. A name that is no key stays as it is,
/// and is unknown.
pub(super) fn as_key(name: String) -> String {
    Key::parse(&name).map_or(name, |key| key.as_str().to_owned())
}
