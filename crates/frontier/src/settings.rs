//! The bounds of a frontier.

use std::time::Duration;

use politely_core::key::KeyKind;

use crate::Spacing;

/// The bounds and rules of a frontier.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most pages of a domain that are ever accepted. Default: 10 million.
    pub pages_per_domain_max: u32,
    /// The most pages of a crawl that are ever accepted. Default: 10 billion.
    pub pages_per_crawl_max: u64,
    /// The most domains of all crawls together. Each costs at most 200 bytes of memory. Default: 10
    /// million.
    pub domains_max: usize,
    /// The most crawls. Default: 1,000.
    pub crawls_max: usize,
    /// The most owners of a domain at a time. Default: 1.
    pub owners_max: u8,
    /// The most live units of work. Default: 100,000.
    pub units_max: usize,
    /// The most pages in a unit of work. Default: 1,000.
    pub pages_per_unit_max: u32,
    /// The most pages in one call that adds pages. Default: 10,000.
    pub pages_per_put_max: usize,
    /// The longest lease of a unit of work. Default: one hour.
    pub lease_max: Duration,
    /// The pause of a domain between two units of work. Default: none.
    pub spacing: Spacing,
    /// How a page's domain follows from its URL, if the page names none. Default: its host.
    pub kind: KeyKind,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pages_per_domain_max: 10_000_000,
            pages_per_crawl_max: 10_000_000_000,
            domains_max: 10_000_000,
            crawls_max: 1_000,
            owners_max: 1,
            units_max: 100_000,
            pages_per_unit_max: 1_000,
            pages_per_put_max: 10_000,
            lease_max: Duration::from_hours(1),
            spacing: Spacing::default(),
            kind: KeyKind::Host,
        }
    }
}
