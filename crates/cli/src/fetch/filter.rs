//! `--include` and `--exclude`: which URLs of the input are fetched.

use regex::RegexSet;
use url::Url;

use crate::config::Bounds;
use crate::exit::Wrong;

/// The patterns of a run.
pub(crate) struct Filter {
    /// One of these must match. `None` means that there are none.
    include: Option<RegexSet>,
    exclude: RegexSet,
}

impl Filter {
    pub(crate) fn new(bounds: &Bounds) -> Result<Self, Wrong> {
        let include = set("include", &bounds.include)?;
        Ok(Self {
            include: (!include.is_empty()).then_some(include),
            exclude: set("exclude", &bounds.exclude)?,
        })
    }

    /// Returns whether a URL is fetched.
    pub(crate) fn lets(&self, url: &Url) -> bool {
        let url = url.as_str();
        self.include
            .as_ref()
            .is_none_or(|include| include.is_match(url))
            && !self.exclude.is_match(url)
    }
}

fn set(flag: &str, patterns: &[String]) -> Result<RegexSet, Wrong> {
    RegexSet::new(patterns).map_err(|why| {
        let why = why.to_string();
        // The lines before the last one show the pattern.
        let why = why.lines().last().unwrap_or_default();
        let why = why.trim_start_matches("error: ");
        Wrong(format!(
            "--{flag}: {why}; write it as a regular expression of the crate regex"
        ))
    })
}
