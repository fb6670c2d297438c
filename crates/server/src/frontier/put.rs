//! Adds pages.

use politely::core::key::KeyKind;
use politely_api::wire::{FrontierPage, PutAnswer, PutResult, Told};
use politely_frontier::{Answer, CrawlName, FrontierError, NewPage, Priority, Revision, ValidPage};

use super::{EmbeddedFrontier, date};

impl EmbeddedFrontier {
    /// Returns how the domain of a page follows from its URL.
    pub(crate) fn key_kind(&self) -> KeyKind {
        self.0.kind
    }

    /// Adds pages, and returns one answer for each. The pages are on disk then.
    pub(crate) async fn put(
        &self,
        crawl: CrawlName,
        pages: Vec<ValidPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.call(move |service| {
            let answers = service.lock().put_valid(&crawl, &pages, service.now())?;
            service.sync()?;
            service.0.changed.notify_waiters();
            Ok(answers)
        })
        .await
    }
}

/// A page without a unit, from a protocol that has no tokens.
pub(crate) enum Item {
    /// A page that was found.
    Discovered(NewPage),
    /// A page that was visited.
    Known(Revision),
}

/// One answer per page, `None` for a page that is not stored because the storage failed, and the
/// reports to the keys, each with its worker.
pub(super) type Stored = (Vec<Option<Answer>>, Vec<(String, Told)>);

/// Items of one kind and crawl that follow one another.
pub(super) enum Run {
    Discovered(Vec<NewPage>),
    Known(Vec<Revision>),
}

/// The most visited pages of a run.
const KNOWN_MAX: usize = 250;

/// Splits items into runs. No page is visited twice in a run, so words about a page stay in order.
pub(super) fn runs(items: Vec<(CrawlName, Item)>) -> Vec<(CrawlName, Run)> {
    let is_other = |run: &[Revision], next: &Revision| {
        run.len() < KNOWN_MAX && run.iter().all(|known| known.page.url != next.page.url)
    };
    let mut runs: Vec<(CrawlName, Run)> = Vec::new();
    for (crawl, item) in items {
        let last = runs.last_mut().filter(|(of, _)| *of == crawl);
        match (last, item) {
            (Some((_, Run::Discovered(pages))), Item::Discovered(page)) => pages.push(page),
            (Some((_, Run::Known(run))), Item::Known(next)) if is_other(run, &next) => {
                run.push(next);
            }
            (_, Item::Discovered(page)) => runs.push((crawl, Run::Discovered(vec![page]))),
            (_, Item::Known(next)) => runs.push((crawl, Run::Known(vec![next]))),
        }
    }
    runs
}

/// Returns the answers to `count` pages, `None` for each if they were not stored.
pub(super) fn answers_of(
    count: usize,
    stored: Result<Vec<Answer>, FrontierError>,
) -> Vec<Option<Answer>> {
    match stored {
        Ok(answers) => answers.into_iter().map(Some).collect(),
        Err(why) => {
            tracing::warn!("{count} pages were not stored: {why}");
            vec![None; count]
        }
    }
}

impl EmbeddedFrontier {
    /// Adds pages that were found, and notes pages that were visited. All are on disk then.
    pub(crate) async fn put_items(&self, items: Vec<(CrawlName, Item)>) -> Stored {
        let count = items.len();
        let stored = self.call(move |service| {
            let stored = service.store_items(items);
            service.sync()?;
            service.0.changed.notify_waiters();
            Ok(stored)
        });
        stored.await.unwrap_or_else(|why| {
            tracing::warn!("{count} pages were not stored: {why}");
            (vec![None; count], Vec::new())
        })
    }

    fn store_items(&self, items: Vec<(CrawlName, Item)>) -> Stored {
        let mut answers = Vec::with_capacity(items.len());
        let mut reports = Vec::new();
        for (crawl, run) in runs(items) {
            match run {
                Run::Known(revisions) => {
                    for revision in revisions {
                        let report = self.report_of(&crawl, &revision);
                        let answer = self.lock().revise(&crawl, revision, self.now());
                        reports.extend(report.filter(|_| answer.is_ok()));
                        answers.push(answer.ok());
                    }
                }
                Run::Discovered(pages) => {
                    let count = pages.len();
                    let stored = self.lock().put(&crawl, pages, self.now());
                    answers.extend(answers_of(count, stored));
                }
            }
        }
        (answers, reports)
    }

    /// Returns the report of a page that a unit has, and the worker that owns the unit.
    fn report_of(&self, crawl: &CrawlName, revision: &Revision) -> Option<(String, Told)> {
        let page = &revision.page;
        let known = self.lock().page(crawl, &page.url, page.key.as_deref());
        let known = known.ok().flatten()?;
        self.0
            .owners
            .report(known.leased?, &known.url, revision.status)
    }
}

/// Returns the page of a call.
///
/// # Errors
/// A date or a priority that is out of range is an error in words.
pub(crate) fn new_page(page: FrontierPage) -> Result<NewPage, String> {
    let FrontierPage {
        url,
        key,
        priority,
        due_unix_ms,
        metadata,
        finished,
    } = page;
    let wrong = || format!("the priority {priority} is not from 0 to 9");
    Ok(NewPage {
        url,
        key,
        priority: Priority::new(priority).ok_or_else(wrong)?,
        // A finished page is never handed out.
        due: due_unix_ms.filter(|_| !finished).map(date).transpose()?,
        metadata: metadata.map_or_else(Vec::new, |json| json.to_string().into_bytes()),
        is_visited: finished,
    })
}

/// Returns the answer to a page in the form of the wire.
pub(crate) fn put_answer(answer: Answer) -> PutAnswer {
    let (answer, detail) = match answer {
        Answer::New => (PutResult::New, None),
        Answer::Known => (PutResult::Known, None),
        Answer::Full => (PutResult::Full, None),
        Answer::Invalid(why) => (PutResult::Invalid, Some(why.to_string())),
    };
    PutAnswer { answer, detail }
}
