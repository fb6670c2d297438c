//! Which domain is next? The order of domains, without I/O and without pages.
//!
//! A domain is in one list at most. While its pages wait for a date it is in the list by date;
//! during the pause after a unit it is in the list by time. Then it moves to its crawl's list of
//! domains that may be handed out. Crawls take turns: the crawl that got the fewest pages is next.
//!
//! Within a crawl the domain with the lowest rank is next. The rank is the time since which the
//! domain may be handed out, plus a minute for each level of priority below the highest. So a high
//! priority goes first, and a low priority does not starve.

mod crawl;
mod domain;
mod domains;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use politely_core::Timestamp;

pub(crate) use self::crawl::Crawl;
use self::domain::Place;
pub(crate) use self::domain::{Domain, Orders};
use self::domains::Domains;
use crate::page::Priority;
use crate::rows::{CrawlId, DomainId};
use crate::{Counts, Date, Moment};

/// The head start of each level of priority over the next lower one.
const HEAD_START: Duration = Duration::from_mins(1);
/// The most domains that one call moves between lists. A million domains that become due together
/// must not delay a call.
const MOVES_MAX: usize = 256;

/// The order of the domains.
#[derive(Debug)]
pub(crate) struct Schedule {
    owners_max: u8,
    domains: Domains,
    /// Few domains have orders of an operator.
    orders: BTreeMap<DomainId, Orders>,
    crawls: BTreeMap<CrawlId, Crawl>,
    waiting: BTreeSet<(Timestamp, DomainId)>,
    asleep: BTreeSet<(Date, DomainId)>,
}

impl Schedule {
    pub(crate) fn new(owners_max: u8) -> Self {
        Self {
            owners_max: owners_max.max(1),
            domains: Domains::default(),
            orders: BTreeMap::new(),
            crawls: BTreeMap::new(),
            waiting: BTreeSet::new(),
            asleep: BTreeSet::new(),
        }
    }

    pub(crate) fn domain(&self, id: DomainId) -> Option<&Domain> {
        self.domains.get(id)
    }

    pub(crate) fn domains(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        self.domains.iter()
    }

    pub(crate) fn domains_len(&self) -> usize {
        self.domains.len()
    }

    pub(crate) fn crawls(&self) -> &BTreeMap<CrawlId, Crawl> {
        &self.crawls
    }

    pub(crate) fn crawl_mut(&mut self, id: CrawlId) -> Option<&mut Crawl> {
        self.crawls.get_mut(&id)
    }

    pub(crate) fn add_crawl(&mut self, id: CrawlId, crawl: Crawl) {
        self.crawls.insert(id, crawl);
    }

    /// Removes a crawl and its domains, and returns their ids.
    pub(crate) fn remove_crawl(&mut self, id: CrawlId) -> Vec<DomainId> {
        let of_crawl = |(domain, of): (DomainId, &Domain)| (of.crawl == id).then_some(domain);
        let found: Vec<_> = self.domains().filter_map(of_crawl).collect();
        for domain in &found {
            self.remove(*domain);
        }
        self.crawls.remove(&id);
        found
    }

    pub(crate) fn orders(&self, id: DomainId) -> Orders {
        self.orders.get(&id).copied().unwrap_or_default()
    }

    /// Stores the orders of an operator. [`Schedule::set`] puts them in force.
    pub(crate) fn set_orders(&mut self, id: DomainId, orders: Orders) {
        if orders == Orders::default() {
            self.orders.remove(&id);
        } else {
            self.orders.insert(id, orders);
        }
    }

    /// Inserts or replaces a domain, and moves it to the list where it belongs now.
    pub(crate) fn set(&mut self, id: DomainId, mut domain: Domain, now: Moment) {
        let old = self.domains.get(id).copied();
        // A pause that ended between two calls counts from its end.
        let since = match old.map(|old| old.place) {
            Some(Place::Waiting(at)) => at.min(now.at),
            _ => now.at,
        };
        domain.place = self.place(id, &domain, since, now);
        if let Some(old) = old {
            // A domain that stays runnable keeps its rank, unless it was handed out.
            if let (Place::Runnable(was), Place::Runnable(rank)) = (old.place, domain.place)
                && old.owners == domain.owners
                && old.leased >= domain.leased
            {
                domain.place = Place::Runnable(rank.min(was));
            }
            if old.place != domain.place {
                self.unlist(id, &old);
            }
        }
        if let Some(crawl) = self.crawls.get_mut(&domain.crawl) {
            if let Some(old) = &old {
                crawl.counts.subtract(Counts::of_domain(old));
            }
            crawl.counts.add(Counts::of_domain(&domain));
        }
        if old.is_none_or(|old| old.place != domain.place) {
            self.list(id, &domain);
        }
        self.domains.insert(id, domain);
    }

    /// Removes a domain and everything that is known about it.
    pub(crate) fn remove(&mut self, id: DomainId) {
        self.orders.remove(&id);
        let Some(domain) = self.domains.remove(id) else {
            return;
        };
        self.unlist(id, &domain);
        if let Some(crawl) = self.crawls.get_mut(&domain.crawl) {
            crawl.counts.subtract(Counts::of_domain(&domain));
        }
    }

    /// Returns the domain that is next, of one crawl or of any. The domain stays in its place.
    pub(crate) fn next(&mut self, crawl: Option<CrawlId>, now: Moment) -> Option<DomainId> {
        self.advance(now);
        let crawl = if let Some(id) = crawl {
            self.crawls.get(&id).filter(|crawl| crawl.is_ready())?
        } else {
            let ready = self.crawls.values().filter(|crawl| crawl.is_ready());
            ready.min_by_key(|crawl| crawl.served)?
        };
        crawl.runnable.first().map(|(_, id)| *id)
    }

    /// Returns whether a domain may be handed out now.
    pub(crate) fn is_due(&mut self, id: DomainId, now: Moment) -> bool {
        self.place_again(id, now);
        let Some(domain) = self.domains.get(id) else {
            return false;
        };
        let crawl = self.crawls.get(&domain.crawl);
        let is_paused = crawl.is_none_or(|crawl| crawl.is_paused);
        matches!(domain.place, Place::Runnable(_)) && !is_paused
    }

    /// Returns whether an owner of a domain may take further pages of it.
    pub(crate) fn has_due_pages(&self, id: DomainId, now: Moment) -> bool {
        let Some(domain) = self.domains.get(id) else {
            return false;
        };
        let unowned = Domain {
            owners: 0,
            next: now.at,
            taken: Timestamp::ZERO,
            ..*domain
        };
        let crawl = self.crawls.get(&domain.crawl);
        let is_paused = crawl.is_none_or(|crawl| crawl.is_paused);
        let place = self.place(id, &unowned, now.at, now);
        matches!(place, Place::Runnable(_)) && !is_paused
    }

    /// Counts pages that were handed out, for the turns of the crawls.
    pub(crate) fn serve(&mut self, crawl: CrawlId, pages: u32) {
        if let Some(crawl) = self.crawls.get_mut(&crawl) {
            crawl.served += u64::from(pages);
        }
    }

    /// Returns how long no further domain becomes due, or `None` if none is listed.
    pub(crate) fn wake(&self, now: Moment) -> Option<Duration> {
        if self.crawls.values().any(Crawl::is_ready) {
            return Some(Duration::ZERO);
        }
        let waiting = self.waiting.first().map(|(at, _)| at.since(now.at));
        let asleep = self.asleep.first().map(|(date, _)| {
            Duration::from_millis(date.millis().saturating_sub(now.date.millis()))
        });
        [waiting, asleep].into_iter().flatten().min()
    }

    /// Moves the domains whose time or date has come.
    fn advance(&mut self, now: Moment) {
        for _ in 0..MOVES_MAX {
            let due = self.waiting.first().filter(|(at, _)| *at <= now.at);
            let Some(&(_, id)) = due else { break };
            self.place_again(id, now);
        }
        for _ in 0..MOVES_MAX {
            let due = self.asleep.first().filter(|(date, _)| *date <= now.date);
            let Some(&(_, id)) = due else { break };
            self.place_again(id, now);
        }
    }

    /// Moves a domain to the list where it belongs now.
    pub(crate) fn place_again(&mut self, id: DomainId, now: Moment) {
        if let Some(domain) = self.domains.get(id) {
            self.set(id, *domain, now);
        }
    }

    fn place(&self, id: DomainId, domain: &Domain, since: Timestamp, now: Moment) -> Place {
        let orders = self.orders(id);
        let Orders {
            blocked_until,
            finished_max,
            ..
        } = orders;
        let is_dated_due = domain.dated > 0 && domain.dated_first <= now.date;
        if domain.owners >= self.owners_max {
            Place::Owned
        } else if finished_max > 0 && domain.finished() >= finished_max {
            Place::Idle
        } else if blocked_until > now.date {
            Place::Asleep(blocked_until)
        } else if domain.ready > domain.leased || is_dated_due {
            let may_leave = domain.may_leave(&orders);
            if may_leave > now.at {
                Place::Waiting(may_leave)
            } else {
                let levels = Priority::MAX.level() - domain.priority.level();
                Place::Runnable(since + HEAD_START * u32::from(levels))
            }
        } else if domain.dated > 0 {
            Place::Asleep(domain.dated_first)
        } else {
            Place::Idle
        }
    }

    fn list(&mut self, id: DomainId, domain: &Domain) {
        match domain.place {
            Place::Idle | Place::Owned => {}
            Place::Asleep(date) => _ = self.asleep.insert((date, id)),
            Place::Waiting(at) => _ = self.waiting.insert((at, id)),
            Place::Runnable(rank) => {
                self.join(domain.crawl);
                if let Some(crawl) = self.crawls.get_mut(&domain.crawl) {
                    crawl.runnable.insert((rank, id));
                }
            }
        }
    }

    /// Prepares a crawl for its first runnable domain. While it had nothing to hand out, it saved
    /// up no turns.
    fn join(&mut self, id: CrawlId) {
        let is_first = |crawl: &Crawl| crawl.runnable.is_empty();
        if !self.crawls.get(&id).is_some_and(is_first) {
            return;
        }
        let ready = self.crawls.values().filter(|crawl| crawl.is_ready());
        let least = ready.map(|crawl| crawl.served).min();
        if let Some(crawl) = self.crawls.get_mut(&id) {
            crawl.served = crawl.served.max(least.unwrap_or(0));
        }
    }

    fn unlist(&mut self, id: DomainId, domain: &Domain) {
        match domain.place {
            Place::Idle | Place::Owned => {}
            Place::Asleep(date) => _ = self.asleep.remove(&(date, id)),
            Place::Waiting(at) => _ = self.waiting.remove(&(at, id)),
            Place::Runnable(rank) => {
                if let Some(crawl) = self.crawls.get_mut(&domain.crawl) {
                    crawl.runnable.remove(&(rank, id));
                }
            }
        }
    }
}
