//! Calls that only read.

use std::num::NonZeroU32;
use std::time::Duration;

use politely_frontier::{
    Counts, CrawlName, DomainStatus, FrontierError, PageStatus, Token, UnitStatus, ValidPage,
    canonical,
};
use redis::{Value, from_redis_value};

use super::keys::{self, CrawlId, SHARDS};
use super::put::Known;
use super::row::{Row, Summary, page_of};
use super::scripts::{self, Call};
use super::{RedisFrontier, date, odd, read, row, unavailable};
use crate::{Command, Trouble};

/// The hash of a URL and the row of its page.
type HashAndRow = (Vec<u8>, Vec<u8>);

/// A domain as its script describes it.
pub(super) struct Found {
    pub(super) summary: String,
    /// The time of its server, in milliseconds since 1970.
    pub(super) now: u64,
    next: u64,
    blocked_until: u64,
    delay: u64,
    limit: u64,
    tokens: Vec<Token>,
}

impl RedisFrontier {
    /// Returns the crawls with their numbers, and whether each is paused. Also returns the number
    /// of units of work.
    ///
    /// # Errors
    /// Fails if a server does not answer.
    pub async fn crawls(&self) -> Result<(Vec<(CrawlName, Counts, bool)>, u64), FrontierError> {
        let rows = self.crawl_rows().await?;
        let sums = self.sums(rows.iter().map(|(_, id, _)| id)).await?;
        let units = sums.iter().map(|known| known.owners).sum();
        let crawls = rows.into_iter().zip(sums);
        let found = crawls.map(|((name, _, is_paused), known)| (name, known.counts, is_paused));
        Ok((found.collect(), units))
    }

    /// Returns the numbers of a crawl, and whether it is paused.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer.
    pub async fn counts(&self, crawl: &CrawlName) -> Result<(Counts, bool), FrontierError> {
        let (id, is_paused) = self.crawl(crawl).await?;
        self.end_expired(&id).await?;
        Ok((self.sums_of(&id).await?.counts, is_paused))
    }

    /// Returns the sums of a crawl over its shards.
    pub(super) async fn sums_of(&self, id: &CrawlId) -> Result<Known, FrontierError> {
        let mut sums = self.sums([id].into_iter()).await?;
        sums.pop().ok_or_else(|| odd("a crawl"))
    }

    /// Returns the sums of crawls over their shards.
    pub(super) async fn sums(
        &self,
        ids: impl Iterator<Item = &CrawlId>,
    ) -> Result<Vec<Known>, FrontierError> {
        let keys = ids.flat_map(|id| {
            (0..SHARDS).map(move |shard| {
                let [_, _, _, _, sums, _] = keys::shard(id, shard);
                sums
            })
        });
        let keys: Vec<_> = keys.collect();
        let gets = keys.iter().map(|key| Command::new("GET", key));
        let answers = self.runner.servers.ask(gets.collect()).await;
        let mut sums = Vec::new();
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            let mut known = Known::default();
            for answer in answers.by_ref().take(SHARDS as usize) {
                let text: Option<String> = read(answer)?;
                let (counts, owners) = row::sums(&text.unwrap_or_default());
                known.counts.add(counts);
                known.owners += owners;
            }
            sums.push(known);
        }
        Ok(sums)
    }

    /// Returns at most `most` domains of a crawl in the order of their names, after the name
    /// `after`.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer.
    pub async fn domains(
        &self,
        crawl: &CrawlName,
        after: &str,
        most: usize,
    ) -> Result<Vec<DomainStatus>, FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        let keys: Vec<_> = (0..SHARDS).map(|shard| keys::shard(&id, shard)).collect();
        let from = match after {
            "" => "-".to_owned(),
            after => format!("({after}"),
        };
        let asked = keys.iter().map(|[_, names, ..]| {
            let range = Command::new("ZRANGEBYLEX", names).arg(&from).arg("+");
            range.arg("LIMIT").arg(0).arg(most)
        });
        let mut names = Vec::new();
        for answer in self.runner.servers.ask(asked.collect()).await {
            names.extend(read::<Vec<String>>(answer)?);
        }
        names.sort_unstable();
        names.truncate(most);
        self.statuses(&id, names).await
    }

    /// Returns one domain of a crawl.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn domain(
        &self,
        crawl: &CrawlName,
        name: &str,
    ) -> Result<DomainStatus, FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        let mut found = self.statuses(&id, vec![name.to_owned()]).await?;
        let unknown = || FrontierError::UnknownDomain(crawl.clone(), name.to_owned());
        found.pop().ok_or_else(unknown)
    }

    /// Returns what is known about domains, without those that do not exist.
    async fn statuses(
        &self,
        id: &CrawlId,
        names: Vec<String>,
    ) -> Result<Vec<DomainStatus>, FrontierError> {
        let calls = names
            .iter()
            .map(|name| self.domain_call(&scripts::LOOK, id, name));
        let answers = self.runner.run(&calls.collect::<Vec<_>>()).await;
        let places = names.iter().map(|name| {
            let [_, _, waiting, ..] = keys::shard(id, keys::shard_of(name));
            waiting
        });
        let places: Vec<_> = places.collect();
        let asked = places.iter().zip(&names);
        let asked = asked.map(|(key, name)| Command::new("ZSCORE", key).arg(name));
        let placed = self.runner.servers.ask(asked.collect()).await;
        let mut statuses = Vec::with_capacity(names.len());
        for ((name, answer), placed) in names.into_iter().zip(answers).zip(placed) {
            let Some(found) = found(answer)? else {
                continue;
            };
            let place: Option<f64> = read(placed)?;
            let summary = Summary::read(&found.summary);
            // A limiter may have put the domain off.
            let place = place.map_or(0, |place| place as u64);
            let is_put_off = summary.due > 0 && place > summary.due.max(found.now);
            let next = if is_put_off { place } else { found.next };
            statuses.push(DomainStatus {
                name,
                counts: summary.counts,
                owners: found.tokens,
                wait: Duration::from_millis(next.saturating_sub(found.now)),
                blocked_until: Some(date(found.blocked_until))
                    .filter(|_| found.blocked_until > found.now),
                delay: Duration::from_millis(found.delay),
                finished_max: NonZeroU32::new(found.limit as u32),
            });
        }
        Ok(statuses)
    }

    /// Returns at most `most` live units of a crawl.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer.
    pub async fn units(
        &self,
        crawl: &CrawlName,
        most: usize,
    ) -> Result<Vec<UnitStatus>, FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        let names = self.owned(&id, most).await?;
        let calls = names
            .iter()
            .map(|name| self.domain_call(&scripts::LOOK, &id, name));
        let looks = self.runner.run(&calls.collect::<Vec<_>>()).await;
        let keys: Vec<_> = names.iter().map(|name| keys::domain(&id, name)).collect();
        let asked = keys
            .iter()
            .map(|[_, _, _, key]| Command::new("HGETALL", key));
        let held = self.runner.servers.ask(asked.collect()).await;
        let mut units = Vec::new();
        for ((name, looked), held) in names.into_iter().zip(looks).zip(held) {
            let Some(found) = found(looked)? else {
                continue;
            };
            for (token, value) in read::<Vec<(u64, Vec<u8>)>>(held)? {
                let ends = value.get(1..16).and_then(|ends| str::from_utf8(ends).ok());
                let ends: u64 = ends.and_then(|ends| ends.parse().ok()).unwrap_or(0);
                units.push(UnitStatus {
                    token: Token(token),
                    domain: name.clone(),
                    pages: (value.len().saturating_sub(16) / 32) as u32,
                    lease: Duration::from_millis(ends.saturating_sub(found.now)),
                });
            }
        }
        units.retain(|unit| !unit.lease.is_zero());
        units.sort_unstable_by_key(|unit| unit.token);
        units.truncate(most);
        Ok(units)
    }

    /// Returns at most `most` domains that have units, the first to expire first.
    async fn owned(&self, id: &CrawlId, most: usize) -> Result<Vec<String>, FrontierError> {
        let keys: Vec<_> = (0..SHARDS).map(|shard| keys::shard(id, shard)).collect();
        let last = most.saturating_sub(1);
        let range = |key| {
            Command::new("ZRANGE", key)
                .arg(0)
                .arg(last)
                .arg("WITHSCORES")
        };
        let asked = keys.iter().map(|[.., owned]| range(owned));
        let mut domains: Vec<(String, f64)> = Vec::new();
        for answer in self.runner.servers.ask(asked.collect()).await {
            domains.extend(read::<Vec<(String, f64)>>(answer)?);
        }
        domains.sort_by(|one, other| one.1.total_cmp(&other.1));
        domains.truncate(most);
        Ok(domains.into_iter().map(|(name, _)| name).collect())
    }

    /// Reads about a thousand summaries of a shard, and returns where to go on.
    pub(super) async fn scan_summaries(
        &self,
        id: &CrawlId,
        shard: u32,
        cursor: u64,
    ) -> Result<(u64, Vec<(String, String)>), FrontierError> {
        let [key, ..] = keys::shard(id, shard);
        let scan = Command::new("HSCAN", &key).arg(cursor);
        self.ask(scan.arg("COUNT").arg(1_000)).await
    }

    pub(super) async fn look(
        &self,
        id: &CrawlId,
        domain: &str,
    ) -> Result<Option<Found>, FrontierError> {
        let call = self.domain_call(&scripts::LOOK, id, domain);
        found(self.runner.run_one(call).await)
    }

    pub(super) fn look_calls<'a>(
        &self,
        domains: impl Iterator<Item = &'a (CrawlId, String)>,
    ) -> Vec<Call> {
        let call = |(id, domain): &(CrawlId, String)| self.domain_call(&scripts::LOOK, id, domain);
        domains.map(call).collect()
    }

    /// Returns what is known about a page, or `None` if the crawl does not know it. `key` is the
    /// domain under which it was added, if that does not follow from the URL.
    ///
    /// # Errors
    /// Fails for an unknown crawl, for a URL that is not valid, and if a server does not answer.
    pub async fn page(
        &self,
        crawl: &CrawlName,
        url: &str,
        key: Option<&str>,
    ) -> Result<Option<PageStatus>, FrontierError> {
        let url = canonical(url)?;
        let page = ValidPage::new(page_of(url.as_str(), key), self.settings.kind)?;
        let (id, _) = self.crawl(crawl).await?;
        let domain = page.key.as_str();
        let hash = row::hash(&page.url);
        let [_, pages, _, units] = keys::domain(&id, domain);
        let asked = vec![
            Command::new("HGET", &pages).arg(&hash),
            Command::new("HGETALL", &units),
        ];
        let mut answers = self.runner.servers.ask(asked).await.into_iter();
        let mut next = || answers.next().unwrap_or(Err(Trouble::Restless));
        let stored: Option<Vec<u8>> = read(next())?;
        let units: Vec<(u64, Vec<u8>)> = read(next())?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let row = Row::read(&stored, domain).ok_or_else(|| odd("a page"))?;
        Ok(Some(row.status(domain, owner(&units, &hash))))
    }

    /// Returns about `most` pages of a domain, visited or not, in no order, and the place where the
    /// list goes on. A page may come twice while others are added.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn pages(
        &self,
        crawl: &CrawlName,
        domain: &str,
        after: Option<u64>,
        most: usize,
    ) -> Result<(Vec<PageStatus>, Option<u64>), FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        let [state, pages, _, units] = keys::domain(&id, domain);
        let scan = Command::new("HSCAN", &pages).arg(after.unwrap_or(0));
        let asked = vec![
            Command::new("EXISTS", &state),
            scan.arg("COUNT").arg(most.max(1)),
            Command::new("HGETALL", &units),
        ];
        let mut answers = self.runner.servers.ask(asked).await.into_iter();
        let mut next = || answers.next().unwrap_or(Err(Trouble::Restless));
        if !read::<bool>(next())? {
            return Err(FrontierError::UnknownDomain(
                crawl.clone(),
                domain.to_owned(),
            ));
        }
        let (cursor, rows): (u64, Vec<HashAndRow>) = read(next())?;
        let units: Vec<(u64, Vec<u8>)> = read(next())?;
        let page = |(hash, stored): HashAndRow| {
            let row = Row::read(&stored, domain).ok_or_else(|| odd("a page"))?;
            Ok(row.status(domain, owner(&units, &hash)))
        };
        let found = rows
            .into_iter()
            .map(page)
            .collect::<Result<_, FrontierError>>()?;
        Ok((found, Some(cursor).filter(|cursor| *cursor != 0)))
    }
}

/// Returns the unit that has a page.
fn owner(units: &[(u64, Vec<u8>)], hash: &[u8]) -> Option<Token> {
    let has_page = |value: &[u8]| {
        value
            .get(16..)
            .is_some_and(|entries| entries.chunks(32).any(|entry| entry.starts_with(hash)))
    };
    let unit = units.iter().find(|(_, value)| has_page(value));
    unit.map(|(token, _)| Token(*token))
}

/// Reads the answer of `look.lua`, or returns `None` if the domain does not exist.
pub(super) fn found(answer: Result<Value, Trouble>) -> Result<Option<Found>, FrontierError> {
    let parts: Vec<Value> =
        from_redis_value(answer.map_err(|why| unavailable(&why))?).map_err(|_| odd("a domain"))?;
    let texts: Vec<String> = from_redis_value(Value::Array(parts)).map_err(|_| odd("a domain"))?;
    let [kind, summary, now, next, blocked, delay, limit, tokens @ ..] = &texts[..] else {
        return Err(odd("a domain"));
    };
    if kind != "k" {
        return Ok(None);
    }
    let number = |text: &String| text.parse::<u64>().map_err(|_| odd("a domain"));
    Ok(Some(Found {
        summary: summary.clone(),
        now: number(now)?,
        next: number(next)?,
        blocked_until: number(blocked)?,
        delay: number(delay)?,
        limit: number(limit)?,
        tokens: tokens
            .iter()
            .map(|token| number(token).map(Token))
            .collect::<Result<_, _>>()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_page_is_found_by_its_hash() {
        let unit = |hashes: &[[u8; 16]]| {
            let mut value = b"s000001700000000".to_vec();
            for hash in hashes {
                value.extend_from_slice(hash);
                value.extend_from_slice(b"0000000000000001");
            }
            value
        };
        let units = [(3, unit(&[[1; 16]])), (7, unit(&[[2; 16], [3; 16]]))];
        assert_eq!(owner(&units, &[3; 16]), Some(Token(7)));
        assert_eq!(owner(&units, &[4; 16]), None);
    }
}
