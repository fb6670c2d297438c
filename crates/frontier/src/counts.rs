//! The numbers of a crawl.

use crate::schedule::Domain;

/// The numbers of a crawl or a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Domains.
    pub domains: u64,
    /// Pages that were ever accepted.
    pub pages: u64,
    /// Pages that wait for their domain only.
    pub ready: u64,
    /// Pages that wait for a date.
    pub dated: u64,
    /// Pages in live units of work.
    pub leased: u64,
}

impl Counts {
    pub(crate) const ZERO: Self = Self {
        domains: 0,
        pages: 0,
        ready: 0,
        dated: 0,
        leased: 0,
    };

    /// Pages that are neither queued nor leased: visited for the last time, or purged.
    pub const fn finished(&self) -> u64 {
        // The parts of a sum over several servers may be of different times.
        let left = self.pages.saturating_sub(self.ready);
        left.saturating_sub(self.dated).saturating_sub(self.leased)
    }

    pub(crate) fn of_domain(domain: &Domain) -> Self {
        Self {
            domains: 1,
            pages: domain.pages.into(),
            ready: domain.ready.saturating_sub(domain.leased).into(),
            dated: domain.dated.into(),
            leased: domain.leased.into(),
        }
    }

    /// Adds the numbers of another part.
    pub const fn add(&mut self, other: Self) {
        self.domains += other.domains;
        self.pages += other.pages;
        self.ready += other.ready;
        self.dated += other.dated;
        self.leased += other.leased;
    }

    pub(crate) const fn subtract(&mut self, other: Self) {
        self.domains -= other.domains;
        self.pages -= other.pages;
        self.ready -= other.ready;
        self.dated -= other.dated;
        self.leased -= other.leased;
    }
}
