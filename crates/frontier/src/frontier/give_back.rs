//! The words of an owner: outcomes, found pages, more time.

use std::time::Duration;

use super::Frontier;
use super::add::PROBES_MAX;
use super::stage::Stage;
use crate::page::{self, canonical};
use crate::queue::{Dated, Failures, Ready};
use crate::rows::{self, DomainId, PageRow, UnitRow, Visit};
use crate::units::Held;
use crate::{Accepted, FrontierError, GiveBack, Moment, Next, PageOutcome, Store, Table, Token};

/// An outcome and its page.
struct Reported {
    page: Ready,
    status: u16,
    next: Next,
    /// The metadata that replaces that of the page.
    metadata: Option<Vec<u8>>,
}

impl Reported {
    /// Returns the failed attempts since the last visit that did not fail.
    fn failures(&self) -> Failures {
        match self.next {
            Next::Retry { is_free, .. } => self.page.page.failures.with(is_free),
            _ => Failures::NONE,
        }
    }
}

impl<S: Store> Frontier<S> {
    /// Accepts the words of an owner: outcomes, found pages, and what becomes of the unit.
    ///
    /// Outcomes and found pages are stored together or not at all. A page with the outcome
    /// [`Next::Never`] is never handed out again.
    ///
    /// # Errors
    /// Fails for a unit that has ended, for an outcome of another unit's page, for too many found
    /// pages, and if the storage fails. Nothing is accepted then.
    pub fn give_back(&mut self, words: GiveBack, now: Moment) -> Result<Accepted, FrontierError> {
        self.call(now, |frontier, now| {
            frontier.check_len(words.found.len())?;
            let (reported, left) = frontier.resolve(words.token, &words.outcomes, now)?;
            frontier.accept(words, reported, left, now)
        })
    }

    /// Accepts the outcome of one page of a unit, and stores `metadata` in place of the page's.
    /// Returns how many pages the owner still has.
    ///
    /// # Errors
    /// Fails for a unit that has ended, for another unit's page, and if the storage fails. Nothing
    /// is accepted then.
    pub fn finish_page(
        &mut self,
        token: Token,
        outcome: PageOutcome,
        metadata: Option<Vec<u8>>,
        now: Moment,
    ) -> Result<u32, FrontierError> {
        self.call(now, |frontier, now| {
            let outcomes = vec![outcome];
            let (mut reported, left) = frontier.resolve(token, &outcomes, now)?;
            if let Some(page) = reported.first_mut() {
                page.metadata = metadata;
            }
            let words = GiveBack {
                outcomes,
                keep: true,
                ..GiveBack::of_token(token)
            };
            let accepted = frontier.accept(words, reported, left, now)?;
            Ok(accepted.kept)
        })
    }

    /// Ends a unit. All its pages return to the queue.
    ///
    /// # Errors
    /// Fails for a unit that has ended, and if the storage fails.
    pub fn drop_unit(&mut self, token: Token, now: Moment) -> Result<(), FrontierError> {
        self.give_back(GiveBack::of_token(token), now).map(drop)
    }

    /// Sets the lease of a unit to `lease` from now on, at most
    /// [`Settings::lease_max`](crate::Settings::lease_max), and returns it.
    ///
    /// # Errors
    /// Fails for a unit that has ended, and if the storage fails.
    pub fn extend(
        &mut self,
        token: Token,
        lease: Duration,
        now: Moment,
    ) -> Result<Duration, FrontierError> {
        self.call(now, |frontier, now| {
            let held = frontier.held(token, now)?;
            let lease = lease.min(frontier.settings.lease_max);
            let held = Held {
                domain: held.domain,
                expires: now.at + lease,
                shares_domain: held.shares_domain,
                pages: held.pages.clone(),
            };
            let mut stage = Stage::default();
            stage.put_unit(token, &held, now);
            frontier.finish(stage, now)?;
            frontier.units.remove(token);
            frontier.units.insert(token, held);
            Ok(lease)
        })
    }

    /// Returns a unit that may still be spoken about.
    pub(super) fn held(&self, token: Token, now: Moment) -> Result<&Held, FrontierError> {
        let held = self.units.live(token, now.at);
        held.ok_or(FrontierError::Stale(token))
    }

    /// Finds the page of each outcome, and the pages without one.
    fn resolve(
        &self,
        token: Token,
        outcomes: &[PageOutcome],
        now: Moment,
    ) -> Result<(Vec<Reported>, Vec<Ready>), FrontierError> {
        let held = self.held(token, now)?;
        let mut left = held.pages.clone();
        left.sort_unstable_by_key(Ready::hash);
        let mut reported = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let url = canonical(&outcome.url)?;
            let Some(place) = self.find_page(held.domain, url.as_str(), &left)? else {
                return Err(FrontierError::NotInUnit(token, url.into()));
            };
            reported.push(Reported {
                page: left.remove(place),
                status: outcome.status,
                next: outcome.next,
                metadata: None,
            });
        }
        Ok((reported, left))
    }

    /// Finds the page of a URL among the pages of a unit, which are sorted by hash.
    fn find_page(
        &self,
        domain: DomainId,
        url: &str,
        pages: &[Ready],
    ) -> Result<Option<usize>, FrontierError> {
        let hash = self.hash(url);
        let probes = (0..PROBES_MAX).map(|probe| hash.wrapping_add(probe));
        let place = |hash| pages.binary_search_by_key(&hash, Ready::hash).ok();
        let places: Vec<_> = probes.filter_map(place).collect();
        match places[..] {
            [] => return Ok(None),
            // A page with this very hash is the page, unless the hashes of two pages collide.
            [place] if pages[place].hash() == hash => return Ok(Some(place)),
            _ => {}
        }
        let name = self.domain_name(domain)?;
        for place in places {
            let row = self.read_page(domain, pages[place].hash())?;
            let row = row.ok_or_else(|| rows::damaged("pages", url.as_bytes()))?;
            if PageRow::decode(&row)?.is_of(url, &name) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn accept(
        &mut self,
        words: GiveBack,
        reported: Vec<Reported>,
        left: Vec<Ready>,
        now: Moment,
    ) -> Result<Accepted, FrontierError> {
        let token = words.token;
        let is_unvisited = |report: &Reported| report.next == Next::Unvisited;
        let has_unvisited = reported.iter().any(is_unvisited);
        let held = self.held(token, now)?;
        let (id, expires, shares_domain) = (held.domain, held.expires, held.shares_domain);
        let (kept, returned) = if words.keep {
            (left, Vec::new())
        } else {
            (Vec::new(), left)
        };
        let released = (held.pages.len() - kept.len()) as u32;
        let pause = self.draw_spacing().max(words.pause);
        let mut stage = Stage::default();
        let Some(domain) = stage.domain(&self.schedule, id) else {
            return Err(FrontierError::Stale(token));
        };
        let mut domain = *domain;
        domain.leased = domain.leased.saturating_sub(released);
        for page in returned {
            domain.priority = domain.priority.max(page.run.priority());
        }
        let mut visited = Vec::with_capacity(reported.len());
        for report in reported {
            let (priority, hash) = (report.page.run.priority(), report.page.hash());
            let again = match report.next {
                Next::Unvisited => {
                    domain.priority = domain.priority.max(priority);
                    continue;
                }
                Next::Never => None,
                Next::At(date) | Next::Retry { at: date, .. } => Some(date),
            };
            if let Some(metadata) = &report.metadata {
                self.put_metadata(&mut stage.batch, id, hash, metadata)?;
            }
            visited.push(report.page);
            domain.ready = domain.ready.saturating_sub(1);
            if let Some(due) = again {
                let dated = Dated {
                    due,
                    hash,
                    priority,
                    failures: report.failures(),
                };
                dated.store(&mut stage.batch, domain.queue);
                domain.add_dated(due);
            }
            let visit = rows::encode(&Visit {
                at: now.date,
                status: report.status,
                again,
            });
            let key = rows::visit_key(id, hash);
            stage.batch.put(Table::Pages, key, visit);
        }
        self.remove_ready(&mut stage.batch, domain.queue, visited.into_iter())?;
        let kept_len = kept.len() as u32;
        let kept = (!kept.is_empty()).then_some(Held {
            domain: id,
            expires,
            shares_domain,
            pages: kept,
        });
        if let Some(held) = &kept {
            // A page with another outcome leaves its run, which tells that the unit has lost it.
            if has_unvisited {
                stage.put_unit(token, held, now);
            }
        } else {
            stage.batch.remove(Table::Control, rows::unit_key(token));
            if !shares_domain {
                domain.end_owner(now.at + pause);
            }
        }
        stage.domains.insert(id, domain);
        let (found, answers) = page::check(words.found, self.settings.kind);
        let found = self.add_pages(&mut stage, domain.crawl, &found, now)?;
        let answers = page::merge(answers, found);
        self.finish(stage, now)?;
        self.units.remove(token);
        if let Some(held) = kept {
            self.units.insert(token, held);
        }
        Ok(Accepted {
            answers,
            kept: kept_len,
        })
    }
}

impl Stage {
    pub(super) fn put_unit(&mut self, token: Token, held: &Held, now: Moment) {
        let row = UnitRow {
            domain: held.domain,
            expires: now.date_after(held.expires.since(now.at)),
            shares_domain: held.shares_domain,
            pages: held.pages.clone(),
        };
        self.batch
            .put(Table::Control, rows::unit_key(token), rows::encode(&row));
    }
}
