//! Hands out units of work. A domain is first offered, so that the caller can acquire permits.

use std::time::Duration;

use futures_util::future::join;
use politely_frontier::{CrawlName, FrontierError, Take, Token, Unit};
use redis::{Value, from_redis_value};

use super::keys::{self, CrawlId};
use super::row::{Row, Summary};
use super::scripts::{self, Call};
use super::{Note, Noting, RedisFrontier, millis, odd, read, unavailable};
use crate::{Command, Trouble};

/// The time for which an offered domain is not offered again. If the caller dies, the domain is
/// offered again after it.
const OFFERED: Duration = Duration::from_secs(2);
/// The time for which the index of a unit outlives its lease.
pub(super) const INDEX_GRACE: Duration = Duration::from_mins(1);

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
        let even = most / keys::SHARDS as usize;
        let all = (0..keys::SHARDS).map(|shard| (shard, even));
        let mut shards = self.shards(id, all).await?;
        let mut ready: Vec<(f64, u32)> = shards
            .iter()
            .zip(0..)
            .filter_map(|(head, shard)| Some((head.rank?, shard)))
            .collect();
        ready.sort_by(|one, other| one.0.total_cmp(&other.0));
        let waits = shards.iter().filter_map(|head| Some(head.next? - head.now));
        let wake = waits.min_by(f64::total_cmp).map(wait);
        // What is left comes from the shards that have more, the best first.
        let given: usize = shards.iter().map(|shard| shard.offers.len()).sum();
        let mut left = most - given;
        let share = left.div_ceil(ready.len().max(1)).max(1);
        let wishes = ready.iter().map(|(_, shard)| {
            let wish = share.min(left);
            left -= wish;
            (*shard, wish)
        });
        let wishes: Vec<_> = wishes.filter(|(_, wish)| *wish > 0).collect();
        shards.extend(self.shards(id, wishes.into_iter()).await?);
        let offers = shards.into_iter().flat_map(|shard| shard.offers);
        let before = found.len();
        found.extend(offers.map(|(domain, summary)| Offer {
            pages: Summary::read(&summary).pages(),
            crawl: name.clone(),
            domain,
            id: id.clone(),
            summary,
        }));
        let is_ready = !ready.is_empty() || found.len() > before;
        Ok(if is_ready { Some(Duration::ZERO) } else { wake })
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

    /// Hands out domains that were offered, each with its first pages. A domain's answer is `None`
    /// if it may not be handed out any more.
    ///
    /// # Errors
    /// A domain's answer is an error if a server does not answer. The domain may be handed out
    /// then; its unit ends with its lease.
    pub async fn take(&self, wanted: &[(Offer, Take)]) -> Vec<Result<Option<Unit>, FrontierError>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let tokens = match self.new_tokens(wanted.len(), 0).await {
            Ok(tokens) => tokens,
            Err(why) => return wanted.iter().map(|_| Err(why.clone())).collect(),
        };
        let wanted = wanted.iter().zip(tokens);
        let wanted = wanted.map(|((offer, take), token)| (offer, self.limited(take), token));
        let wanted: Vec<_> = wanted.collect();
        let keys: Vec<_> = wanted.iter().map(|it| keys::unit(it.2)).collect();
        let indexes = wanted.iter().zip(&keys);
        let indexes = indexes.map(|((offer, take, _), key)| index(key, offer, take.lease));
        let calls = wanted
            .iter()
            .map(|(offer, take, token)| self.take_call(offer, take, *token));
        let calls: Vec<_> = calls.collect();
        let indexing = self.runner.servers.change(indexes.collect());
        let (indexed, answers) = join(indexing, self.runner.run(&calls)).await;
        let mut notes = Vec::with_capacity(wanted.len());
        let mut newest = 0;
        let answers = wanted.iter().zip(indexed.into_iter().zip(answers));
        let taken = answers.map(|((offer, take, token), (indexed, answer))| {
            if !read::<bool>(indexed)? {
                // The server lost the last tokens, and its clock stepped back. The unit that may
                // have begun ends with its lease.
                newest = newest.max(token.0);
                return Ok(None);
            }
            let (kind, summary, more) = self::answer(answer)?;
            notes.push(Note::new(&offer.id, &offer.domain, summary));
            match kind.as_str() {
                "u" => self.unit(offer, take, *token, more).map(Some),
                "t" => {
                    let last = from_redis_value(more).map_err(|_| odd("a token"))?;
                    newest = newest.max(last);
                    Ok(None)
                }
                _ => Ok(None),
            }
        });
        let taken = taken.collect();
        self.note_changed(notes).await;
        if newest > 0 {
            // The domains are offered again, and then get newer tokens.
            let _ = self.new_tokens(0, newest).await;
        }
        taken
    }

    /// Returns a wish within the bounds of the settings.
    fn limited(&self, take: &Take) -> Take {
        let pages_max = self.settings.pages_per_unit_max.max(1);
        Take {
            pages_max: take.pages_max.clamp(1, pages_max),
            lease: take.lease.min(self.settings.lease_max),
            ..take.clone()
        }
    }

    fn take_call(&self, offer: &Offer, take: &Take, token: Token) -> Call {
        let mut call = self.domain_call(&scripts::TAKE, &offer.id, &offer.domain);
        call.number(token).number(millis(take.lease));
        call.number(take.pages_max).number(self.spacing());
        call.arg(if take.shares_domain { "s" } else { "o" });
        call
    }

    /// Reads the pages of a unit that was handed out.
    fn unit(
        &self,
        offer: &Offer,
        take: &Take,
        token: Token,
        rows: Value,
    ) -> Result<Unit, FrontierError> {
        let rows: Vec<Vec<u8>> = from_redis_value(rows).map_err(|_| odd("taken pages"))?;
        let pages = rows
            .iter()
            .map(|row| Row::read(row, &offer.domain).map(Row::taken));
        let pages = pages
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| odd("taken pages"))?;
        *self.served.lock().entry(offer.id.clone()).or_default() += pages.len() as u64;
        Ok(Unit {
            token,
            crawl: offer.crawl.clone(),
            domain: offer.domain.clone(),
            lease: take.lease,
            pages,
        })
    }

    /// Puts off domains that were offered and not taken, each for its time.
    ///
    /// # Errors
    /// Fails if a server does not answer. The domains are then offered again soon.
    pub async fn put_off(&self, offers: &[(Offer, Duration)]) -> Result<(), FrontierError> {
        let notes = offers.iter().map(|(offer, wait)| Note {
            how: Noting::Place(*wait),
            ..Note::new(&offer.id, &offer.domain, offer.summary.clone())
        });
        self.note(notes.collect()).await.map(drop)
    }

    /// Returns `count` tokens that are newer than all others, and than `least`.
    async fn new_tokens(
        &self,
        count: usize,
        least: u64,
    ) -> Result<impl Iterator<Item = Token> + use<>, FrontierError> {
        let mut call = Call::new(&scripts::TOKENS, [keys::LAST_TOKEN.to_owned()]);
        call.number(least).number(count);
        let last: u64 = read(self.runner.run_one(call).await)?;
        Ok((last + 1 - count as u64..=last).map(Token))
    }

    pub(super) async fn change_one<T: redis::FromRedisValue>(
        &self,
        command: Command<'_>,
    ) -> Result<T, FrontierError> {
        let mut answers = self.runner.servers.change(vec![command]).await;
        read(answers.pop().unwrap_or(Err(Trouble::Restless)))
    }

    /// Notes the summaries of domains that have changed. If that fails, the old places of the
    /// domains in the schedule lead to them, later.
    pub(super) async fn note_changed(&self, notes: Vec<Note<'_>>) {
        let _ = self.note(notes).await;
    }
}

/// Returns the command that stores which domain a unit is of. Owners name their units by the token
/// alone. It answers nothing if the token is in use.
fn index<'a>(key: &'a str, offer: &Offer, lease: Duration) -> Command<'a> {
    let domain = format!("{}/{}", offer.id, offer.domain);
    let set = Command::new("SET", key).arg(domain).arg("NX");
    set.arg("PX").arg(millis(lease + INDEX_GRACE))
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
