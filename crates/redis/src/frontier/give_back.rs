//! The words of owners: outcomes, found pages, more time. Also words about pages without a token.

use std::time::Duration;

use politely_frontier::{
    Accepted, Answer, CrawlName, FrontierError, GiveBack, NewPage, Next, PageOutcome, Revision,
    Token, ValidPage, canonical,
};
use redis::{cmd, from_redis_value};

use super::keys::{self, CrawlId};
use super::put::merge;
use super::scripts;
use super::take::answer;
use super::{RedisFrontier, crawl_row, millis, odd, read, row};
use crate::{Command, Trouble};

/// An outcome as an argument of the script.
struct OutcomeArg {
    hash: [u8; 16],
    kind: &'static str,
    status: u16,
    date: String,
}

impl RedisFrontier {
    /// Accepts the words of an owner: outcomes, found pages, and what becomes of the unit. If the
    /// owner keeps the unit, `lease` is its new lease.
    ///
    /// Outcomes are stored together or not at all. Found pages are added before: if the outcomes
    /// are then refused, the pages stay.
    ///
    /// # Errors
    /// Fails for a unit that has ended or is of another crawl, for an outcome of another unit's
    /// page, for too many found pages, and if a server does not answer.
    pub async fn give_back(
        &self,
        crawl: &CrawlName,
        words: GiveBack,
        lease: Option<Duration>,
    ) -> Result<Accepted, FrontierError> {
        self.check_len(words.found.len())?;
        let token = words.token;
        let outcomes = words
            .outcomes
            .iter()
            .map(outcome_arg)
            .collect::<Result<Vec<_>, _>>()?;
        let stale = || FrontierError::Stale(token);
        let place = self.domain_of(crawl, token).await?;
        let (id, domain) = place.ok_or_else(stale)?;
        let mut answers = Vec::new();
        if !words.found.is_empty() {
            if !self.is_unit(&id, &domain, token).await? {
                return Err(stale());
            }
            let (valid, invalid) = self.check(words.found);
            answers = merge(invalid, self.add(&id, valid).await?);
        }
        let lease = lease
            .filter(|_| words.keep)
            .map(|lease| lease.min(self.settings.lease_max));
        if let Some(lease) = lease {
            self.keep_index(token, lease).await?;
        }
        let mut call = self.domain_call(&scripts::GIVE_BACK, &id, &domain);
        call.number(token).number(u8::from(words.keep));
        call.arg(lease.map_or_else(String::new, |lease| millis(lease).to_string()));
        call.number(self.spacing().max(millis(words.pause)));
        for outcome in &outcomes {
            call.arg(outcome.hash)
                .arg(outcome.kind)
                .number(outcome.status)
                .arg(&outcome.date);
        }
        let (kind, summary, more) = answer(self.runner.run_one(call).await)?;
        self.note_one(&id, &domain, summary).await;
        match kind.as_str() {
            "k" => {
                let kept = from_redis_value(more).map_err(|_| odd("kept pages"))?;
                if kept == 0 {
                    self.end_index(token).await;
                }
                Ok(Accepted { answers, kept })
            }
            "m" => {
                let at: usize = from_redis_value(more).map_err(|_| odd("an outcome"))?;
                let url = words.outcomes.get(at).map_or("", |outcome| &outcome.url);
                Err(FrontierError::NotInUnit(token, url.to_owned()))
            }
            _ => Err(stale()),
        }
    }

    /// Ends a unit. All its pages return to the queue.
    ///
    /// # Errors
    /// Fails for a unit that has ended or is of another crawl, and if a server does not answer.
    pub async fn drop_unit(&self, crawl: &CrawlName, token: Token) -> Result<(), FrontierError> {
        self.give_back(crawl, GiveBack::of_token(token), None)
            .await
            .map(drop)
    }

    /// Returns the domain of a unit, if the unit is of this crawl.
    async fn domain_of(
        &self,
        crawl: &CrawlName,
        token: Token,
    ) -> Result<Option<(CrawlId, String)>, FrontierError> {
        let unit = keys::unit(token);
        let asked = vec![
            Command {
                key: keys::CRAWLS,
                words: cmd("HGET").arg(keys::CRAWLS).arg(crawl.as_str()).to_owned(),
            },
            Command {
                key: &unit,
                words: cmd("GET").arg(&unit).to_owned(),
            },
        ];
        let mut answers = self.runner.servers.ask(asked).await.into_iter();
        let mut next = || read(answers.next().unwrap_or(Err(Trouble::Restless)));
        let (row, index): (Option<String>, Option<String>) = (next()?, next()?);
        let (Some(row), Some(index)) = (row, index) else {
            return Ok(None);
        };
        let (id, _) = crawl_row(&row);
        let found = index.split_once('/').filter(|(of, _)| *of == id.0);
        Ok(found.map(|(_, domain)| (id.clone(), domain.to_owned())))
    }

    async fn is_unit(
        &self,
        id: &CrawlId,
        domain: &str,
        token: Token,
    ) -> Result<bool, FrontierError> {
        let [_, _, _, units] = keys::domain(id, domain);
        self.ask("HEXISTS", &units, Some(&token.to_string())).await
    }

    /// Notes the outcome of a page, whichever unit has it, and returns the token of that unit. The
    /// page leaves its unit. A page that the crawl does not know is added.
    ///
    /// Use [`RedisFrontier::give_back`] if the caller has a token: here, a late word of a stale
    /// owner is accepted.
    ///
    /// # Errors
    /// Fails if the crawl must be added and there are too many, and if a server does not answer.
    pub async fn revise(
        &self,
        crawl: &CrawlName,
        revision: Revision,
    ) -> Result<(Answer, Option<Token>), FrontierError> {
        let Revision {
            page,
            status,
            again,
        } = revision;
        let valid = match ValidPage::new(page.clone(), self.settings.kind) {
            Ok(valid) => valid,
            Err(why) => return Ok((Answer::Invalid(why), None)),
        };
        let id = match self.crawl(crawl).await {
            Err(FrontierError::UnknownCrawl(_)) => None,
            found => Some(found?.0),
        };
        if let Some(id) = id {
            let domain = valid.key.as_str();
            let mut call = self.domain_call(&scripts::REVISE, &id, domain);
            call.arg(row::hash(&valid.url)).number(status);
            call.arg(again.map_or_else(String::new, |date| date.millis().to_string()));
            call.number(self.spacing());
            call.arg(row::rest(&valid.url, domain, &valid.metadata));
            let (kind, summary, more) = answer(self.runner.run_one(call).await)?;
            self.note_one(&id, domain, summary).await;
            if kind == "k" {
                let token: String = from_redis_value(more).map_err(|_| odd("a visited page"))?;
                return Ok((Answer::Known, token.parse().ok().map(Token)));
            }
        }
        let page = NewPage {
            due: again,
            is_visited: true,
            ..page
        };
        let answers = self.put(crawl, vec![page]).await?;
        Ok((answers.into_iter().next().unwrap_or(Answer::Full), None))
    }
}

fn outcome_arg(outcome: &PageOutcome) -> Result<OutcomeArg, FrontierError> {
    let (kind, date) = match outcome.next {
        Next::Never => ("n", None),
        Next::At(date) => ("a", Some(date)),
        Next::Retry { at, is_free: false } => ("r", Some(at)),
        Next::Retry { at, .. } => ("R", Some(at)),
        Next::Unvisited => ("u", None),
    };
    Ok(OutcomeArg {
        hash: row::hash(canonical(&outcome.url)?.as_str()),
        kind,
        status: outcome.status,
        date: date.map_or_else(String::new, |date| date.millis().to_string()),
    })
}
