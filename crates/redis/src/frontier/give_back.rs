//! The words of owners: outcomes, found pages, more time. Also words about pages without a token.

use std::mem::take;
use std::time::Duration;

use futures_util::future::{join, join_all};
use politely_frontier::{
    Accepted, Answer, CrawlName, FrontierError, GiveBack, NewPage, Next, PageOutcome, Revision,
    Token, ValidPage, canonical,
};
use redis::from_redis_value;

use super::keys::{self, CrawlId};
use super::put::merge;
use super::scripts::{self, Call};
use super::take::{INDEX_GRACE, answer};
use super::{Note, RedisFrontier, crawl_row, millis, odd, read, row};
use crate::{Command, Trouble};

/// The words about one unit of work.
struct Words {
    unit: GiveBack,
    crawl: CrawlId,
    domain: String,
    /// The answers to the found pages.
    answers: Vec<Answer>,
}

impl RedisFrontier {
    /// Accepts the words of owners: outcomes, found pages, and what becomes of the units. If an
    /// owner keeps its unit, the duration is its new lease.
    ///
    /// Outcomes of a unit are stored together or not at all. Found pages are added before: if the
    /// outcomes are then refused, the pages stay.
    ///
    /// # Errors
    /// A unit's answer is an error if the unit has ended or is of another crawl, for an outcome of
    /// another unit's page, for too many found pages, and if a server does not answer.
    pub async fn give_back(
        &self,
        crawl: &CrawlName,
        units: Vec<(GiveBack, Option<Duration>)>,
    ) -> Vec<Result<Accepted, FrontierError>> {
        let places = match self.places(crawl, &units).await {
            Ok(places) => places,
            Err(why) => return units.iter().map(|_| Err(why.clone())).collect(),
        };
        let units = units.into_iter().zip(places);
        let prepared = units.map(|((unit, lease), place)| self.prepare(unit, lease, place));
        let (mut words, mut calls) = (Vec::new(), Vec::new());
        for prepared in join_all(prepared).await {
            words.push(prepared.map(|(words, call)| {
                calls.push(call);
                words
            }));
        }
        let mut answers = self.runner.run(&calls).await.into_iter();
        let (mut notes, mut ended) = (Vec::new(), Vec::new());
        let accepted = words.iter().map(|words| {
            let words = words.as_ref().map_err(Clone::clone)?;
            let token = words.unit.token;
            let said = answers.next().unwrap_or(Err(Trouble::Restless));
            let (kind, summary, more) = answer(said)?;
            notes.push(Note::new(&words.crawl, &words.domain, summary));
            match kind.as_str() {
                "k" => {
                    let kept = from_redis_value(more).map_err(|_| odd("kept pages"))?;
                    ended.extend((kept == 0).then(|| keys::unit(token)));
                    let answers = words.answers.clone();
                    Ok(Accepted { answers, kept })
                }
                "m" => {
                    let at: usize = from_redis_value(more).map_err(|_| odd("an outcome"))?;
                    let outcome = words.unit.outcomes.get(at);
                    let url = outcome.map_or("", |outcome| &outcome.url);
                    Err(FrontierError::NotInUnit(token, url.to_owned()))
                }
                _ => Err(FrontierError::Stale(token)),
            }
        });
        let accepted = accepted.collect();
        // Without an answer, the index of a unit expires.
        let unlinks = ended.iter().map(|key| Command::new("UNLINK", key));
        let unlinks = self.runner.servers.change(unlinks.collect());
        join(self.note_changed(notes), unlinks).await;
        accepted
    }

    /// Adds the found pages of a unit, and returns the call that accepts its outcomes.
    async fn prepare(
        &self,
        mut unit: GiveBack,
        lease: Option<Duration>,
        place: Option<(CrawlId, String)>,
    ) -> Result<(Words, Call), FrontierError> {
        self.check_len(unit.found.len())?;
        let stale = || FrontierError::Stale(unit.token);
        let (crawl, domain) = place.ok_or_else(stale)?;
        let lease = lease
            .filter(|_| unit.keep)
            .map(|lease| lease.min(self.settings.lease_max));
        let mut call = self.domain_call(&scripts::GIVE_BACK, &crawl, &domain);
        call.number(unit.token).number(u8::from(unit.keep));
        call.arg(lease.map_or_else(String::new, |lease| millis(lease).to_string()));
        call.number(self.spacing().max(millis(unit.pause)));
        for outcome in &unit.outcomes {
            add_outcome(&mut call, outcome)?;
        }
        let mut answers = Vec::new();
        if !unit.found.is_empty() {
            let [_, _, _, units] = keys::domain(&crawl, &domain);
            let asked = Command::new("HEXISTS", &units).arg(unit.token.to_string());
            if !self.ask::<bool>(asked).await? {
                return Err(stale());
            }
            let (valid, invalid) = self.check(take(&mut unit.found));
            answers = merge(invalid, self.add(&crawl, valid).await?);
        }
        if let Some(lease) = lease {
            self.keep_index(unit.token, lease).await?;
        }
        let words = Words {
            unit,
            crawl,
            domain,
            answers,
        };
        Ok((words, call))
    }

    /// Makes the index of a unit outlive a new lease.
    async fn keep_index(&self, token: Token, lease: Duration) -> Result<(), FrontierError> {
        let key = keys::unit(token);
        let expire = Command::new("PEXPIRE", &key).arg(millis(lease + INDEX_GRACE));
        self.change_one::<u8>(expire).await.map(drop)
    }

    /// Ends a unit. All its pages return to the queue.
    ///
    /// # Errors
    /// Fails for a unit that has ended or is of another crawl, and if a server does not answer.
    pub async fn drop_unit(&self, crawl: &CrawlName, token: Token) -> Result<(), FrontierError> {
        let units = vec![(GiveBack::of_token(token), None)];
        let dropped = self.give_back(crawl, units).await;
        dropped
            .into_iter()
            .try_for_each(|dropped| dropped.map(drop))
    }

    /// Returns the domain of each unit that is of this crawl.
    async fn places(
        &self,
        crawl: &CrawlName,
        units: &[(GiveBack, Option<Duration>)],
    ) -> Result<Vec<Option<(CrawlId, String)>>, FrontierError> {
        let keys: Vec<_> = units
            .iter()
            .map(|(unit, _)| keys::unit(unit.token))
            .collect();
        let mut asked = vec![Command::new("HGET", keys::CRAWLS).arg(crawl.as_str())];
        asked.extend(keys.iter().map(|key| Command::new("GET", key)));
        let mut answers = self.runner.servers.ask(asked).await.into_iter();
        let row: Option<String> = read(answers.next().unwrap_or(Err(Trouble::Restless)))?;
        let id = row.map(|row| crawl_row(&row).0);
        let place = |index: Option<String>| {
            let index = index?;
            let (of, domain) = index.split_once('/')?;
            let id = id.as_ref().filter(|id| id.0 == of)?;
            Some((id.clone(), domain.to_owned()))
        };
        answers.map(|answer| Ok(place(read(answer)?))).collect()
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
            self.note_changed(vec![Note::new(&id, domain, summary)])
                .await;
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

/// Adds an outcome to the arguments of the script.
fn add_outcome(call: &mut Call, outcome: &PageOutcome) -> Result<(), FrontierError> {
    let (kind, date) = match outcome.next {
        Next::Never => ("n", None),
        Next::At(date) => ("a", Some(date)),
        Next::Retry { at, is_free: false } => ("r", Some(at)),
        Next::Retry { at, .. } => ("R", Some(at)),
        Next::Unvisited => ("u", None),
    };
    let date = date.map_or_else(String::new, |date| date.millis().to_string());
    call.arg(row::hash(canonical(&outcome.url)?.as_str()));
    call.arg(kind).number(outcome.status).arg(date);
    Ok(())
}
