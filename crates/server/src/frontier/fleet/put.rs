//! Adds pages of a protocol without tokens, and notes those that were visited.
//!
//! A call that the engine does not answer is made once more, because it may be repeated.

use futures_util::future::join_all;
use politely_api::wire::Told;
use politely_frontier::{Answer, CrawlName, FrontierError, NewPage, Revision};

use super::FleetFrontier;
use crate::frontier::put::{Item, Run, Stored, answers_of, runs};

/// The answer to a page that was visited, `None` if the engine did not answer, and the report to
/// its key with its worker.
type Noted = (Option<Answer>, Option<(String, Told)>);

impl FleetFrontier {
    pub(in crate::frontier) async fn put_items(&self, items: Vec<(CrawlName, Item)>) -> Stored {
        let mut answers = Vec::with_capacity(items.len());
        let mut reports = Vec::new();
        for (crawl, run) in runs(items) {
            match run {
                Run::Known(revisions) => {
                    for (answer, report) in self.note_visits(&crawl, revisions).await {
                        answers.push(answer);
                        reports.extend(report);
                    }
                }
                Run::Discovered(pages) => {
                    let count = pages.len();
                    let stored = self.put_again(&crawl, pages).await;
                    answers.extend(answers_of(count, stored));
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
