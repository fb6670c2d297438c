//! Accepts the words of owners.

use std::sync::Arc;
use std::time::Duration;

use politely_api::wire::{
    DoneAnswer, DonePage, DoneUnit, Error, FrontierPage, Next as Advice, PutAnswer, PutResult,
    Then, ToldAnswer,
};
use politely_frontier::{
    CrawlName, Date, FrontierError, GiveBack, Moment, Next, PageOutcome, Token,
};

use super::owners::Owners;
use super::{EmbeddedFrontier, date, new_page, put_answer};
use crate::watch::Worker;

/// The words about one unit, and the answers of the coordinator to its reports.
pub(crate) struct Words {
    pub(crate) unit: DoneUnit,
    pub(crate) reports: Vec<ToldAnswer>,
}

impl EmbeddedFrontier {
    /// Accepts the words about some units. They are on disk when this returns.
    pub(crate) async fn done(
        &self,
        crawl: CrawlName,
        worker: Arc<Worker>,
        units: Vec<Words>,
    ) -> Result<Vec<DoneAnswer>, FrontierError> {
        self.call(move |service| {
            let accept = |words| service.accept(&crawl, &worker, words);
            let answers = units.into_iter().map(accept).collect();
            service.sync()?;
            service.0.changed.notify_waiters();
            Ok(answers)
        })
        .await
    }

    fn accept(&self, crawl: &CrawlName, worker: &Worker, words: Words) -> DoneAnswer {
        let Words { unit, reports } = words;
        let token = Token(unit.token);
        let mut answer = DoneAnswer {
            token: unit.token,
            ..DoneAnswer::default()
        };
        match self.try_accept(crawl, worker, unit, &reports) {
            Ok((kept, found)) => {
                answer.kept = kept;
                answer.found = found;
                if kept == 0 {
                    self.0.owners.end(token, &self.0.coordinator);
                }
            }
            Err(error) => answer.error = Some(error),
        }
        answer.reports = reports;
        answer
    }

    fn try_accept(
        &self,
        crawl: &CrawlName,
        worker: &Worker,
        unit: DoneUnit,
        reports: &[ToldAnswer],
    ) -> Result<(u32, Vec<PutAnswer>), Error> {
        let now = self.now();
        let (token, lease_ms) = (Token(unit.token), unit.lease_ms);
        let (words, invalid) = read(&self.0.owners, worker, unit, reports, now)?;
        let mut frontier = self.lock();
        if frontier.crawl_of(token, now) != Some(crawl) {
            return Err(refused(&FrontierError::Stale(token)));
        }
        let accepted = frontier
            .give_back(words, now)
            .map_err(|why| refused(&why))?;
        if let Some(lease_ms) = lease_ms.filter(|_| accepted.kept > 0) {
            let lease = Duration::from_millis(lease_ms.into());
            let extended = frontier.extend(token, lease, now);
            extended.map_err(|why| refused(&why))?;
        }
        drop(frontier);
        Ok((accepted.kept, merge(invalid, accepted.answers)))
    }
}

/// Reads the words about a unit. Also returns the answers to found pages that are not valid.
pub(super) fn read(
    owners: &Owners,
    worker: &Worker,
    unit: DoneUnit,
    reports: &[ToldAnswer],
    now: Moment,
) -> Result<(GiveBack, Vec<Option<PutAnswer>>), Error> {
    let token = Token(unit.token);
    let outcomes = outcomes(&unit, reports, now)?;
    if !owners.is_of(token, worker) {
        return Err(refused(&FrontierError::Stale(token)));
    }
    let (found, invalid) = split(unit.found);
    let words = GiveBack {
        token,
        outcomes,
        found,
        keep: unit.keep,
        pause: Duration::ZERO,
    };
    Ok((words, invalid))
}

/// Returns the outcomes of a unit's pages. `reports` are the answers to their reports.
fn outcomes(
    unit: &DoneUnit,
    reports: &[ToldAnswer],
    now: Moment,
) -> Result<Vec<PageOutcome>, Error> {
    if unit.lease_ms.is_some() && !unit.keep {
        return Err(error("lease_ms", "needs \"keep\": true"));
    }
    let mut reports = reports.iter();
    let outcome = |(at, page): (usize, &DonePage)| {
        let report = page.report.as_ref().and_then(|_| reports.next());
        outcome(at, page, report, now)
    };
    unit.pages.iter().enumerate().map(outcome).collect()
}

/// Fills the places of valid found pages with their answers.
pub(super) fn merge(
    found: Vec<Option<PutAnswer>>,
    valid: Vec<politely_frontier::Answer>,
) -> Vec<PutAnswer> {
    let mut valid = valid.into_iter().map(put_answer);
    let answers = found
        .into_iter()
        .map(|answer| answer.or_else(|| valid.next()));
    answers.flatten().collect()
}

/// Splits the found pages into valid pages, and one answer for each page that is not.
fn split(found: Vec<FrontierPage>) -> (Vec<politely_frontier::NewPage>, Vec<Option<PutAnswer>>) {
    let mut valid = Vec::with_capacity(found.len());
    let mut answers = Vec::with_capacity(found.len());
    for page in found {
        match new_page(page) {
            Ok(page) => {
                valid.push(page);
                answers.push(None);
            }
            Err(why) => answers.push(Some(PutAnswer {
                answer: PutResult::Invalid,
                detail: Some(why),
            })),
        }
    }
    (valid, answers)
}

/// Returns what becomes of a page. `report` is the answer to its report.
fn outcome(
    at: usize,
    page: &DonePage,
    report: Option<&ToldAnswer>,
    now: Moment,
) -> Result<PageOutcome, Error> {
    let field = |name: &str| format!("pages[{at}].{name}");
    let again = page.again_unix_ms.map(date).transpose();
    let again = again.map_err(|why| error(&field("again_unix_ms"), &why))?;
    if let Some(wrong) = report.and_then(|report| report.error.as_ref()) {
        let field = field(&format!("report.{}", wrong.field));
        return Err(error(&field, &wrong.detail));
    }
    let told = page.report.as_ref();
    if told.is_some_and(|told| told.body_coming) {
        let detail = "a page is done when its body has ended; report the head with /api/v1/report";
        return Err(error(&field("report.body_coming"), detail));
    }
    let next = match (page.then, report) {
        (Then::Return, _) => Next::Unvisited,
        (Then::Advice, Some(report)) => advised(&report.next, again, now),
        (Then::Advice, None) if again.is_none() => {
            let detail = "a page without a report needs \"then\": \"finish\" or \"return\"";
            return Err(error(&field("then"), detail));
        }
        (Then::Advice | Then::Finish, _) => again.map_or(Next::Never, Next::At),
    };
    Ok(PageOutcome {
        url: page.url.clone(),
        status: told.and_then(|told| told.status).unwrap_or(0),
        next,
    })
}

/// Returns what the law's advice means for a page.
fn advised(advice: &Advice, again: Option<Date>, now: Moment) -> Next {
    match advice {
        Advice::Retry { after_ms, free } => Next::Retry {
            at: now.date.after(Duration::from_millis(*after_ms)),
            is_free: *free,
        },
        Advice::Done | Advice::GiveUp { .. } => again.map_or(Next::Never, Next::At),
    }
}

/// Returns the error of a unit whose words were refused.
pub(super) fn refused(why: &FrontierError) -> Error {
    let field = match why {
        FrontierError::Stale(_) => "token",
        FrontierError::NotInUnit(..) | FrontierError::Invalid(_) => "pages",
        FrontierError::TooManyPages(..) => "found",
        _ => "unit",
    };
    error(field, &why.to_string())
}

fn error(field: &str, detail: &str) -> Error {
    Error {
        field: field.to_owned(),
        detail: detail.to_owned(),
    }
}
