//! Hands out units of work. A domain is first offered, so that the caller can acquire permits.

use std::time::Duration;

use futures_util::future::join;
use politely_frontier::{CrawlName, FrontierError, Take, Token, Unit};
use redis::{Value, cmd, from_redis_value};

use super::keys::{self, CrawlId};
use super::row::{Row, Summary};
use super::scripts::{self, Call};
use super::{Noting, RedisFrontier, millis, odd, read, unavailable};
use crate::{Command, Trouble};

/// The time for which an offered domain is not offered again. If the caller dies, the domain is
/// offered again after it.
const OFFERED: Duration = Duration::from_secs(2);
/// The time for which the index of a unit outlives its lease.
const INDEX_GRACE: Duration = Duration::from_mins(1);
/// The most tries to get a token that is newer than a domain's last one.
const TOKENS_MAX: usize = 3;

/// A domain that may be handed out.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The crawl.
    pub crawl: CrawlName,
    /// The domain, as the text of a key.
    pub domain: String,
    /// About how many pages may leave. Fewer may be there when the domain is taken.
    pub pages: u64,
    id: CrawlId,
    summary: String,
}

/// Domains that may be handed out.
#[derive(Debug, Default)]
pub struct Offers {
    /// The domains. Each is hidden from other callers for two seconds.
    pub offers: Vec<Offer>,
    /// How long no further domain becomes due, or `None` if none is in the schedule.
    pub wake: Option<Duration>,
}

/// The answer of a shard.
struct Shard {
    now: f64,
    rank: Option<f64>,
    next: Option<f64>,
    offers: Vec<(String, String)>,
}

impl RedisFrontier {
    /// Returns at most `most` domains that may be handed out now, of one crawl or of all crawls
    /// that are not paused.
    ///
    /// # Errors
    /// Fails for an unknown crawl, for too many units, and if a server does not answer.
    pub async fn offers(
        &self,
        crawl: Option<&CrawlName>,
        most: usize,
    ) -> Result<Offers, FrontierError> {
        let mut crawls = match crawl {
            Some(name) => {
                let (id, is_paused) = self.crawl(name).await?;
                vec![(name.clone(), id, is_paused)]
            }
            None => self.crawl_rows().await?,
        };
        crawls.retain(|(_, _, is_paused)| !is_paused);
        self.sort_by_turn(&mut crawls);
        let mut found = Offers::default();
        for (name, id, _) in crawls {
            let units = self.known(&id).await?.owners;
            let units_max = self.settings.units_max;
            if units >= units_max as u64 {
                return Err(FrontierError::TooManyUnits(units_max));
            }
            let left = most - found.offers.len();
            let wake = self.offers_of(&name, &id, left, &mut found.offers).await?;
            found.wake = [found.wake, wake].into_iter().flatten().min();
            if found.offers.len() >= most {
                break;
            }
        }
        Ok(found)
    }

    /// Sorts crawls by the pages that they were served. A crawl that is new saved up no turns.
    fn sort_by_turn(&self, crawls: &mut [(CrawlName, CrawlId, bool)]) {
        let mut served = self.served.lock();
        let least = served.values().copied().min().unwrap_or(0);
        crawls.sort_by_key(|(_, id, _)| *served.entry(id.clone()).or_insert(least));
    }

    /// Offers domains of one crawl, the longest waiting first, and returns when the next is due.
    async fn offers_of(
        &self,
        name: &CrawlName,
        id: &CrawlId,
        most: usize,
        found: &mut Vec<Offer>,
    ) -> Result<Option<Duration>, FrontierError> {
        let heads = self
            .shards(id, (0..keys::SHARDS).map(|shard| (shard, 0)))
            .await?;
        let mut ready: Vec<(f64, u32)> = heads
            .iter()
            .zip(0..)
            .filter_map(|(head, shard)| Some((head.rank?, shard)))
            .collect();
        ready.sort_by(|one, other| one.0.total_cmp(&other.0));
        let waits = heads.iter().filter_map(|head| Some(head.next? - head.now));
        let mut wake = waits.min_by(f64::total_cmp).map(wait);
        // With one wish, the best shard is asked. With more, each of the best gives some.
        let share = most.div_ceil(ready.len().max(1)).max(1);
        let mut left = most;
        let mut wishes = Vec::new();
        for (_, shard) in &ready {
            let wish = share.min(left);
            left -= wish;
            if wish > 0 {
                wishes.push((*shard, wish));
            }
        }
        for shard in self.shards(id, wishes.into_iter()).await? {
            for (domain, summary) in shard.offers {
                found.push(Offer {
                    pages: Summary::read(&summary).pages(),
                    crawl: name.clone(),
                    domain,
                    id: id.clone(),
                    summary,
                });
            }
        }
        if !ready.is_empty() {
            wake = Some(Duration::ZERO);
        }
        Ok(wake)
    }

    async fn shards(
        &self,
        id: &CrawlId,
        wishes: impl Iterator<Item = (u32, usize)>,
    ) -> Result<Vec<Shard>, FrontierError> {
        let call = |(shard, wish): (u32, usize)| {
            let [summaries, _, waiting, runnable, ..] = keys::shard(id, shard);
            let mut call = Call::new(&scripts::NEXT, [summaries, waiting, runnable]);
            call.number(wish).number(millis(OFFERED));
            call
        };
        let calls: Vec<_> = wishes.map(call).collect();
        let answers = self.runner.run(&calls).await.into_iter();
        answers.map(|answer| shard(read(answer)?)).collect()
    }

    /// Offers one domain of a crawl. Returns `None` if it may not be handed out now.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn offer(
        &self,
        crawl: &CrawlName,
        domain: &str,
    ) -> Result<Option<Offer>, FrontierError> {
        let (id, is_paused) = self.crawl(crawl).await?;
        let found = self.look(&id, domain).await?;
        let unknown = || FrontierError::UnknownDomain(crawl.clone(), domain.to_owned());
        let found = found.ok_or_else(unknown)?;
        let summary = Summary::read(&found.summary);
        let is_due = summary.due > 0 && summary.due <= found.now;
        Ok((is_due && !is_paused).then(|| Offer {
            crawl: crawl.clone(),
            domain: domain.to_owned(),
            pages: summary.pages(),
            id,
            summary: found.summary,
        }))
    }

    /// Hands out a domain that was offered, with its first pages. Returns `None` if the domain may
    /// not be handed out any more.
    ///
    /// # Errors
    /// Fails if a server does not answer. The domain may be handed out then; its unit ends with
    /// its lease.
    pub async fn take(&self, offer: &Offer, take: &Take) -> Result<Option<Unit>, FrontierError> {
        let lease = take.lease.min(self.settings.lease_max);
        let most = take
            .pages_max
            .clamp(1, self.settings.pages_per_unit_max.max(1));
        let mut least = 0;
        for _ in 0..TOKENS_MAX {
            let token = self.new_token(least).await?;
            let mut call = self.domain_call(&scripts::TAKE, &offer.id, &offer.domain);
            call.number(token).number(millis(lease)).number(most);
            call.number(self.spacing());
            call.arg(if take.shares_domain { "s" } else { "o" });
            let taking = self.runner.run_one(call);
            let (indexed, taken) = join(self.index(token, offer, lease), taking).await;
            if !indexed? {
                // The server lost the last tokens, and its clock stepped back. The unit that may
                // have begun ends with its lease.
                least = token.0;
                continue;
            }
            let (kind, summary, more) = answer(taken)?;
            if kind == "t" {
                // The server lost the last tokens, and its clock stepped back.
                least = from_redis_value(more).map_err(|_| odd("a token"))?;
                continue;
            }
            self.note_one(&offer.id, &offer.domain, summary).await;
            if kind == "w" {
                return Ok(None);
            }
            let rows: Vec<Vec<u8>> = from_redis_value(more).map_err(|_| odd("taken pages"))?;
            let pages = rows
                .iter()
                .map(|row| Row::read(row, &offer.domain).map(Row::taken));
            let pages = pages
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| odd("taken pages"))?;
            *self.served.lock().entry(offer.id.clone()).or_default() += pages.len() as u64;
            return Ok(Some(Unit {
                token,
                crawl: offer.crawl.clone(),
                domain: offer.domain.clone(),
                lease,
                pages,
            }));
        }
        Ok(None)
    }

    /// Puts off a domain that was offered and not taken.
    ///
    /// # Errors
    /// Fails if a server does not answer. The domain is then offered again soon.
    pub async fn put_off(&self, offer: &Offer, wait: Duration) -> Result<(), FrontierError> {
        let noted = vec![(offer.domain.clone(), offer.summary.clone())];
        self.note(&offer.id, noted, Noting::Place(wait))
            .await
            .map(drop)
    }

    /// Returns a token that is newer than all others, and than `least`.
    async fn new_token(&self, least: u64) -> Result<Token, FrontierError> {
        let mut call = Call::new(&scripts::TOKEN, [keys::LAST_TOKEN.to_owned()]);
        call.number(least);
        read(self.runner.run_one(call).await).map(Token)
    }

    /// Stores which domain a unit is of. Owners name their units by the token alone. Returns
    /// `false` if the token is in use.
    async fn index(
        &self,
        token: Token,
        offer: &Offer,
        lease: Duration,
    ) -> Result<bool, FrontierError> {
        let domain = format!("{}/{}", offer.id, offer.domain);
        let key = keys::unit(token);
        let mut words = cmd("SET");
        words
            .arg(&key)
            .arg(domain)
            .arg("NX")
            .arg("PX")
            .arg(millis(lease + INDEX_GRACE));
        self.change_one(&key, words).await
    }

    /// Makes the index of a unit outlive a new lease.
    pub(super) async fn keep_index(
        &self,
        token: Token,
        lease: Duration,
    ) -> Result<(), FrontierError> {
        let key = keys::unit(token);
        let mut words = cmd("PEXPIRE");
        words.arg(&key).arg(millis(lease + INDEX_GRACE));
        self.change_one::<u8>(&key, words).await.map(drop)
    }

    /// Forgets the index of a unit that has ended. Without an answer it expires.
    pub(super) async fn end_index(&self, token: Token) {
        let key = keys::unit(token);
        let _ = self
            .change_one::<u8>(&key, cmd("UNLINK").arg(&key).to_owned())
            .await;
    }

    pub(super) async fn change_one<T: redis::FromRedisValue>(
        &self,
        key: &str,
        words: redis::Cmd,
    ) -> Result<T, FrontierError> {
        let mut answers = self
            .runner
            .servers
            .change(vec![Command { key, words }])
            .await;
        read(answers.pop().unwrap_or(Err(Trouble::Restless)))
    }

    /// Notes the summary of one domain. If that fails, the domain's old place in the schedule leads
    /// to it, later.
    pub(super) async fn note_one(&self, id: &CrawlId, domain: &str, summary: String) {
        let noted = vec![(domain.to_owned(), summary)];
        let _ = self.note(id, noted, Noting::NOW).await;
    }
}

/// Splits an answer of a script about one domain into its kind, the summary, and more.
pub(super) fn answer(
    answer: Result<Value, Trouble>,
) -> Result<(String, String, Value), FrontierError> {
    let value = answer.map_err(|why| unavailable(&why))?;
    let Value::Array(parts) = value else {
        return Err(odd("a domain"));
    };
    let mut parts = parts.into_iter();
    let mut text = || {
        let part = parts.next().unwrap_or(Value::Nil);
        from_redis_value::<String>(part).map_err(|_| odd("a domain"))
    };
    let (kind, summary) = (text()?, text()?);
    Ok((kind, summary, parts.next().unwrap_or(Value::Nil)))
}

fn shard(answer: Vec<Value>) -> Result<Shard, FrontierError> {
    let wrong = |_| odd("the schedule");
    let texts: Vec<String> =
        from_redis_value(Value::Array(answer)).map_err(|_| odd("the schedule"))?;
    let [now, rank, next, offers @ ..] = &texts[..] else {
        return Err(odd("the schedule"));
    };
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse::<f64>().map(Some).map_err(wrong),
    };
    Ok(Shard {
        now: number(now)?.unwrap_or_default(),
        rank: number(rank)?,
        next: number(next)?,
        offers: offers
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
    })
}

fn wait(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis.max(0.0) / 1_000.0).unwrap_or(Duration::MAX)
}
