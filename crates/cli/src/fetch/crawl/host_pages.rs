//! The pages of a host in a state folder.

use std::collections::HashMap;

use url::{Position, Url};

use super::kept::{CUSTOM, Kept, is_finished};
use super::note::Note;

/// The number of reasons that are kept. Failures for further ones are only counted.
const REASONS_MAX: usize = 1_000;

/// The pages of a host.
#[derive(Debug, Default)]
pub(crate) struct HostPages {
    pub(crate) origins: Vec<String>,
    pub(crate) fetched: u64,
    pub(crate) failed: u64,
    pub(crate) waiting: u64,
    /// The reasons of the failures and their pages, the most first.
    pub(crate) reasons: Vec<(String, u64)>,
}

impl Kept {
    /// Returns the pages of a host, which is given with its port unless that is the usual one.
    pub(crate) fn of_host(&self, host: &str) -> Result<HostPages, String> {
        let mut found = HostPages::default();
        let mut reasons: HashMap<String, u64> = HashMap::new();
        self.each_domain(|domain| {
            let origin = domain.strip_prefix(CUSTOM).unwrap_or_default();
            let url = Url::parse(origin).ok();
            let own = url
                .as_ref()
                .map(|url| &url[Position::BeforeHost..Position::AfterPort]);
            if own != Some(host) {
                return Ok(true);
            }
            found.origins.push(origin.to_owned());
            self.each_chunk(domain, |pages| {
                for page in pages {
                    match page.status {
                        _ if !is_finished(page) => found.waiting += 1,
                        Some(200..=299) => found.fetched += 1,
                        _ => {
                            found.failed += 1;
                            let (note, _) = Note::split(&page.metadata);
                            let reason = note.failure.map(String::from).unwrap_or_default();
                            if reasons.len() < REASONS_MAX || reasons.contains_key(&reason) {
                                *reasons.entry(reason).or_default() += 1;
                            }
                        }
                    }
                }
                Ok(true)
            })?;
            Ok(true)
        })?;
        found.reasons = reasons.into_iter().collect();
        found.reasons.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        Ok(found)
    }
}
