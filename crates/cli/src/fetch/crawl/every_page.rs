//! Calls that visit every page of a state folder: a count, and a run that fetches all again.

use politely::core::key::Key;
use politely_frontier::{Answer, PageStatus, ValidPage};
use url::Url;

use super::kept::{CUSTOM, Kept, LINES, is_finished};
use super::note::Note;

impl Kept {
    /// Queues all finished pages again that the run fetches again. `queued` gets an origin and how
    /// many of its pages are queued, before a page of them is handed out. It returns whether to go
    /// on.
    pub(crate) fn put_all_again(
        &self,
        mut queued: impl FnMut(&str, u32) -> bool,
    ) -> Result<(), String> {
        self.each_domain(|domain| {
            let Some(origin) = domain
                .strip_prefix(CUSTOM)
                .filter(|origin| *origin != LINES)
            else {
                return Ok(true);
            };
            let mut goes_on = true;
            self.each_chunk(domain, |pages| {
                let page = |page: &PageStatus| {
                    let (_, stored) = Note::split(&page.metadata);
                    let url = Url::parse(&page.url).map_err(|why| why.to_string())?;
                    let key = Key::custom(origin).map_err(|why| why.to_string())?;
                    let valid = ValidPage::of_url(url, key, Vec::new());
                    let mut valid = valid.map_err(|why| why.to_string())?;
                    valid.metadata = stored.to_vec();
                    Ok::<_, String>(valid)
                };
                let pages: Vec<_> = pages.iter().map(page).collect::<Result<_, _>>()?;
                self.put(&pages, |answers| {
                    let is_new = |answer: &&Answer| **answer == Answer::New;
                    goes_on = queued(origin, answers.iter().filter(is_new).count() as u32);
                })?;
                Ok(goes_on)
            })?;
            Ok(goes_on)
        })
    }

    /// Returns how many pages are finished: fetched and failed. With `run` only those that this
    /// run finished.
    pub(crate) fn finished(&self, run: Option<u32>) -> Result<(u64, u64), String> {
        let (mut fetched, mut failed) = (0, 0);
        self.each_domain(|domain| {
            self.each_chunk(domain, |pages| {
                for page in pages.iter().filter(|page| is_finished(page)) {
                    let is_counted = |run| Note::split(&page.metadata).0.run == run;
                    match page.status {
                        _ if !run.is_none_or(is_counted) => {}
                        Some(200..=299) => fetched += 1,
                        _ => failed += 1,
                    }
                }
                Ok(true)
            })?;
            Ok(true)
        })?;
        Ok((fetched, failed))
    }
}
