//! Adds pages: one script per domain, many domains per round trip.

use std::collections::HashMap;
use std::time::Duration;

use politely_frontier::{Answer, Counts, CrawlName, FrontierError, NewPage, Settings, ValidPage};
use redis::Value;
use tokio::time::Instant;

use super::keys::{self, CrawlId};
use super::scripts::{self, Call};
use super::{Note, RedisFrontier, crawl_row, odd, read, row};
use crate::Command;

/// The most pages of one script.
const PAGES_MAX: usize = 250;
/// The time for which the numbers of a crawl are believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// While a crawl has this much room, numbers of the last second decide about its bounds.
const AMPLE: u64 = 1_000_000;

/// The numbers of a crawl.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) counts: Counts,
    pub(super) owners: u64,
}

impl Known {
    fn pages_room(&self, settings: &Settings) -> u64 {
        settings
            .pages_per_crawl_max
            .saturating_sub(self.counts.pages)
    }

    fn domains_room(&self, settings: &Settings) -> u64 {
        (settings.domains_max as u64).saturating_sub(self.counts.domains)
    }
}

/// The pages of one call of the script.
struct Group {
    domain: String,
    pages: Vec<(usize, ValidPage)>,
}

impl RedisFrontier {
    /// Adds pages to a crawl, and returns one answer for each. The first page creates the crawl.
    ///
    /// The bounds of the crawl are approximate if several calls add pages at the same time.
    ///
    /// # Errors
    /// Fails for too many pages or crawls, and if a server does not answer. Some of the pages may
    /// be added then; they are known if the call is repeated.
    pub async fn put(
        &self,
        crawl: &CrawlName,
        pages: Vec<NewPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        let (valid, answers) = self.check(pages);
        let added = self.put_valid(crawl, valid).await?;
        Ok(merge(answers, added))
    }

    /// Adds pages that were found valid, as [`RedisFrontier::put`].
    ///
    /// # Errors
    /// See [`RedisFrontier::put`].
    pub async fn put_valid(
        &self,
        crawl: &CrawlName,
        pages: Vec<ValidPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.check_len(pages.len())?;
        let id = self.crawl_or_new(crawl).await?;
        self.add(&id, pages).await
    }

    /// Splits pages into the valid ones and the answers to the others, `None` for a valid page.
    pub(super) fn check(&self, pages: Vec<NewPage>) -> (Vec<ValidPage>, Vec<Option<Answer>>) {
        let mut valid = Vec::with_capacity(pages.len());
        let check = |page| match ValidPage::new(page, self.settings.kind) {
            Ok(page) => {
                valid.push(page);
                None
            }
            Err(why) => Some(Answer::Invalid(why)),
        };
        let answers = pages.into_iter().map(check).collect();
        (valid, answers)
    }

    pub(super) fn check_len(&self, pages: usize) -> Result<(), FrontierError> {
        let most = self.settings.pages_per_put_max;
        if pages > most {
            return Err(FrontierError::TooManyPages(pages, most));
        }
        Ok(())
    }

    async fn crawl_or_new(&self, name: &CrawlName) -> Result<CrawlId, FrontierError> {
        let asked = Command::new("HGET", keys::CRAWLS).arg(name.as_str());
        let row: Option<String> = self.ask(asked).await?;
        if let Some(row) = row {
            return Ok(crawl_row(&row).0);
        }
        let new = format!("{:012x}", self.rng.lock().next_u64() >> 16);
        let mut call = Call::new(&scripts::CRAWL, [keys::CRAWLS.to_owned()]);
        call.arg(name.as_str())
            .number(self.settings.crawls_max)
            .arg(new);
        match self.runner.run_one(call).await {
            Ok(Value::Int(count)) => {
                let count = usize::try_from(count).unwrap_or_default();
                Err(FrontierError::TooManyCrawls(count, name.clone()))
            }
            answer => Ok(crawl_row(&read::<String>(answer)?).0),
        }
    }

    /// Adds pages, and notes the summaries of their domains.
    pub(super) async fn add(
        &self,
        crawl: &CrawlId,
        pages: Vec<ValidPage>,
    ) -> Result<Vec<Answer>, FrontierError> {
        let mut answers = vec![Answer::Full; pages.len()];
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, page) in pages.into_iter().enumerate() {
            let domain = page.key.as_str();
            let place = places.get(domain).copied();
            let open = place.filter(|place| groups[*place].pages.len() < PAGES_MAX);
            let place = open.unwrap_or_else(|| {
                places.insert(domain.to_owned(), groups.len());
                groups.push(Group {
                    domain: domain.to_owned(),
                    pages: Vec::new(),
                });
                groups.len() - 1
            });
            groups[place].pages.push((at, page));
        }
        if groups.is_empty() {
            return Ok(answers);
        }
        let known = self.known(crawl).await?;
        let wanted: usize = groups.iter().map(|group| group.pages.len()).sum();
        let (room, domains) = (
            known.pages_room(&self.settings),
            known.domains_room(&self.settings),
        );
        let mut notes = Vec::with_capacity(groups.len());
        let mut result = Ok(());
        if room >= wanted as u64 && domains >= groups.len() as u64 {
            let calls = groups
                .iter()
                .map(|group| self.put_call(crawl, group, room, true));
            let calls: Vec<_> = calls.collect();
            let replies = self.runner.run(&calls).await;
            for (group, reply) in groups.iter().zip(replies) {
                match read::<(String, String)>(reply) {
                    Ok((words, summary)) => {
                        learn(group, &words, &mut answers)?;
                        notes.push(Note::new(crawl, &group.domain, summary));
                    }
                    Err(why) => result = Err(why),
                }
            }
        } else {
            // There is not room for all of them, so each group gets what the others left.
            let (mut room, mut domains) = (room, domains);
            for group in &groups {
                let call = self.put_call(crawl, group, room, domains > 0);
                let (words, summary): (String, String) = read(self.runner.run_one(call).await)?;
                let new = learn(group, &words, &mut answers)?;
                room -= new.min(room);
                let is_new = row::Summary::read(&summary).counts.pages == new;
                domains -= u64::from(is_new && new > 0).min(domains);
                notes.push(Note::new(crawl, &group.domain, summary));
            }
        }
        self.note(notes).await?;
        result.map(|()| answers)
    }

    fn put_call(&self, crawl: &CrawlId, group: &Group, room: u64, opens: bool) -> Call {
        let mut call = self.domain_call(&scripts::PUT, crawl, &group.domain);
        call.number(self.settings.pages_per_domain_max).number(room);
        call.number(u8::from(opens));
        for (_, page) in &group.pages {
            let rest = row::rest(&page.url, &group.domain, &page.metadata);
            let visited = if page.is_visited { "v" } else { "" };
            let due = page.due.map(|due| due.millis().to_string());
            let when = [visited, &due.unwrap_or_default()].concat();
            call.arg(row::hash(&page.url));
            call.arg(row::new_row(page.priority, &rest)).arg(when);
        }
        call
    }

    /// Returns the numbers of a crawl. They may be a second old while there is ample room.
    pub(super) async fn known(&self, crawl: &CrawlId) -> Result<Known, FrontierError> {
        let believed = self.known.lock().get(crawl).copied();
        if let Some((at, known)) = believed
            && at.elapsed() < BELIEVED
            && known.pages_room(&self.settings) > AMPLE
            && known.domains_room(&self.settings) > AMPLE
        {
            return Ok(known);
        }
        let known = self.sums_of(crawl).await?;
        let mut all = self.known.lock();
        // A deleted crawl has an id that no call uses again.
        all.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        all.insert(crawl.clone(), (now(), known));
        Ok(known)
    }
}

#[expect(clippy::disallowed_methods, reason = "the age of numbers is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Fills the places of valid pages with their answers.
pub(super) fn merge(answers: Vec<Option<Answer>>, valid: Vec<Answer>) -> Vec<Answer> {
    let mut valid = valid.into_iter();
    let answers = answers
        .into_iter()
        .map(|answer| answer.or_else(|| valid.next()));
    answers.flatten().collect()
}

/// Learns the answers of the script, and returns how many pages are new.
fn learn(group: &Group, words: &str, answers: &mut [Answer]) -> Result<u64, FrontierError> {
    if words.len() != group.pages.len() {
        return Err(odd("added pages"));
    }
    let mut new = 0;
    for ((at, _), word) in group.pages.iter().zip(words.bytes()) {
        answers[*at] = match word {
            b'n' => Answer::New,
            b'k' => Answer::Known,
            _ => Answer::Full,
        };
        new += u64::from(word == b'n');
    }
    Ok(new)
}
