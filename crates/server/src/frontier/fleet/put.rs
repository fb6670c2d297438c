//! Adds pages of a protocol without tokens, and notes those that were visited.
//!
//! A call that the engine does not answer is made once more, because it may be repeated.

use futures_util::future::join_all;
use politely_api::wire::Told;
use politely_frontier::{Answer, CrawlName, FrontierError, NewPage, Revision};

use super::FleetFrontier;
use crate::frontier::put::{Item, Stored};

/// The most visited pages of one stream that are noted at a time.
const REVISED_MAX: usize = 250;

/// The answer to a page that was visited, `None` if the engine did not answer, and the report to
/// its key with its worker.
type Noted = (Option<Answer>, Option<(String, Told)>);

impl FleetFrontier {
    pub(in crate::frontier) async fn put_items(&self, items: Vec<(CrawlName, Item)>) -> Stored {
        let mut answers = Vec::with_capacity(items.len());
        let mut reports = Vec::new();
        let mut items = items.into_iter().peekable();
        while let Some((crawl, item)) = items.next() {
            match item {
                Item::Known(revision) => {
                    let mut known = vec![revision];
                    while known.len() < REVISED_MAX
                        && let Some((_, Item::Known(revision))) = items
                            .next_if(|(of, next)| *of == crawl && is_of_other_page(&known, next))
                    {
                        known.push(revision);
                    }
                    for (answer, report) in self.note_visits(&crawl, known).await {
                        answers.push(answer);
                        reports.extend(report);
                    }
                }
                Item::Discovered(page) => {
                    let mut pages = vec![page];
                    let is_alike = |next: &(CrawlName, Item)| {
                        next.0 == crawl && matches!(next.1, Item::Discovered(_))
                    };
                    while let Some((_, Item::Discovered(page))) = items.next_if(is_alike) {
                        pages.push(page);
                    }
                    let count = pages.len();
                    match self.put_again(&crawl, pages).await {
                        Ok(stored) => answers.extend(stored.into_iter().map(Some)),
                        Err(why) => {
                            tracing::warn!("{count} pages were not stored: {why}");
                            answers.extend(vec![None; count]);
                        }
                    }
                }
            }
        }
        self.0.changed.notify_waiters();
        (answers, reports)
    }

    /// Adds pages, and does so again if the engine does not answer. Pages that are known then may
    /// have been new before.
    async fn put_again(
        &self,
        crawl: &CrawlName,
        pages: Vec<NewPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        let frontier = &self.0.frontier;
        match frontier.put(crawl, pages.clone()).await {
            Err(FrontierError::Unavailable(_)) => {
                let mut answers = frontier.put(crawl, pages).await?;
                for answer in answers
                    .iter_mut()
                    .filter(|answer| **answer == Answer::Known)
                {
                    *answer = Answer::New;
                }
                Ok(answers)
            }
            answers => answers,
        }
    }

    /// Notes that pages were visited. Those that are not known are added together.
    async fn note_visits(&self, crawl: &CrawlName, known: Vec<Revision>) -> Vec<Noted> {
        let page = |known: &Revision| NewPage {
            due: known.again,
            is_visited: true,
            ..known.page.clone()
        };
        let pages = known.iter().map(page).collect();
        // Without an answer, each page is noted by itself.
        let added = self.0.frontier.put(crawl, pages).await.unwrap_or_default();
        let mut added = added.into_iter();
        let noted = known.into_iter().map(|known| {
            let added = added.next().filter(|answer| *answer != Answer::Known);
            async {
                match added {
                    Some(answer) => (Some(answer), None),
                    None => self.revise(crawl, known).await,
                }
            }
        });
        join_all(noted).await
    }

    /// Notes that a page was visited, and does so again if the engine does not answer. Returns the
    /// report to its key, if a worker of this coordinator had the page.
    async fn revise(&self, crawl: &CrawlName, revision: Revision) -> Noted {
        let (url, status) = (revision.page.url.clone(), revision.status);
        let mut revised = self.0.frontier.revise(crawl, revision.clone()).await;
        if matches!(revised, Err(FrontierError::Unavailable(_))) {
            revised = self.0.frontier.revise(crawl, revision).await;
        }
        match revised {
            Ok((answer, token)) => {
                let report = token.and_then(|token| self.0.owners.report(token, &url, status));
                (Some(answer), report)
            }
            Err(why) => {
                tracing::warn!("a visited page was not stored: {why}");
                (None, None)
            }
        }
    }
}

/// Returns whether an item is a page that was visited, and none of `known`. Words about one page
/// stay in their order.
fn is_of_other_page(known: &[Revision], next: &Item) -> bool {
    let Item::Known(next) = next else {
        return false;
    };
    known.iter().all(|known| known.page.url != next.page.url)
}
