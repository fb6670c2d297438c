//! The frontier of a fleet: crawls that several coordinators share, in Redis or Valkey.
//!
//! A domain's pages and owners are under one hash tag, and each change of them is one script. So
//! the promises of [`politely_frontier`] hold whichever coordinators make the calls, and whenever
//! they are killed:
//!
//! - A unit is accepted while its row is in the domain's keys. The script that ends a lease removes
//!   the row and returns the pages at once. Leases follow the clock of the server that has the
//!   domain.
//! - A fencing token comes from one counter. The script that hands out a unit refuses a token that
//!   is not newer than the domain's last one.
//! - A page is in the queue, in one unit, or visited for the last time. No script leaves it in two
//!   of these places.
//!
//! Calls about units are batches: the scripts of all their domains are one pipeline, and so are the
//! notes in the schedule.
//!
//! The schedule is a hint. Each domain has a summary in one of 16 shards of its crawl; a summary
//! with an older version never replaces a newer one. A call notes the summary after the domain has
//! changed and before it is answered. If the caller dies in between, the domain's old place in the
//! schedule leads to it, and [`RedisFrontier::mend`] compares all domains with their summaries.
//!
//! | file | its part |
//! | --- | --- |
//! | `keys.rs` | the names of the keys |
//! | `row.rs` | a page and a summary as bytes |
//! | `scripts.rs`, `*.lua` | the scripts; many of them are one round trip |
//! | `put.rs` | adds pages |
//! | `take.rs` | which domain is next, and its unit of work |
//! | `give_back.rs` | the words of owners |
//! | `operate.rs` | orders of operators |
//! | `forget.rs` | forgets pages by their age |
//! | `look.rs` | calls that only read |
//! | `mend.rs` | repairs the schedule, and frees the space of deleted crawls |

mod forget;
mod give_back;
mod keys;
mod look;
mod mend;
mod operate;
mod put;
mod row;
mod scripts;
mod take;

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Rng;
use politely_frontier::{CrawlName, Date, FrontierError, Settings};
use redis::{FromRedisValue, Value, from_redis_value};
use tokio::time::Instant;

use self::keys::CrawlId;
use self::put::Known;
use self::scripts::{Call, Runner};
pub use self::take::{Offer, Offers};
use crate::{Command, Servers, Trouble, UrlError};

/// A frontier in Redis or Valkey, which any number of processes share.
///
/// Methods return [`FrontierError::Unavailable`] if a server does not answer. What such a call
/// changed is not known, and the call may be repeated.
pub struct RedisFrontier {
    runner: Runner,
    settings: Settings,
    rng: Mutex<Rng>,
    /// The numbers of crawls, at most a second old.
    known: Mutex<HashMap<CrawlId, (Instant, Known)>>,
    /// Pages that this process handed out of each crawl, so that crawls take turns.
    served: Mutex<HashMap<CrawlId, u64>>,
}

impl RedisFrontier {
    /// Creates a frontier in the servers of `url`, as [`Servers::connect`]. It connects at the
    /// first call. `seed` is a random number.
    ///
    /// All processes need the same [`Settings::owners_max`] and [`Settings::kind`].
    ///
    /// # Errors
    ///
    /// [`UrlError`] if the URL is invalid, or if the file of its `ca` cannot be read.
    pub fn connect(url: &str, settings: Settings, seed: u64) -> Result<Self, UrlError> {
        Ok(Self {
            runner: Runner::new(Servers::connect(url)?),
            settings,
            rng: Mutex::new(Rng::new(seed)),
            known: Mutex::default(),
            served: Mutex::default(),
        })
    }

    /// Returns the id of a crawl, and whether it is paused.
    async fn crawl(&self, name: &CrawlName) -> Result<(CrawlId, bool), FrontierError> {
        let asked = Command::new("HGET", keys::CRAWLS).arg(name.as_str());
        let row: Option<String> = self.ask(asked).await?;
        let row = row.ok_or_else(|| FrontierError::UnknownCrawl(name.clone()))?;
        Ok(crawl_row(&row))
    }

    /// Returns all crawls, and whether each is paused.
    async fn crawl_rows(&self) -> Result<Vec<(CrawlName, CrawlId, bool)>, FrontierError> {
        let rows: HashMap<String, String> = self.ask(Command::new("HGETALL", keys::CRAWLS)).await?;
        let row = |(name, row): (String, String)| {
            let (id, is_paused) = crawl_row(&row);
            Some((name.parse().ok()?, id, is_paused))
        };
        let mut rows: Vec<_> = rows.into_iter().filter_map(row).collect();
        rows.sort_by(|one: &(CrawlName, _, _), other| one.0.cmp(&other.0));
        Ok(rows)
    }

    /// Runs a command that changes nothing.
    async fn ask<T: FromRedisValue>(&self, command: Command<'_>) -> Result<T, FrontierError> {
        let mut answers = self.runner.servers.ask(vec![command]).await;
        read(answers.pop().unwrap_or(Err(Trouble::Restless)))
    }

    /// Returns a call about a domain.
    fn domain_call(&self, code: &'static scripts::Code, crawl: &CrawlId, domain: &str) -> Call {
        let mut call = Call::new(code, keys::domain(crawl, domain));
        call.number(self.settings.owners_max.max(1));
        call
    }

    /// Draws the pause of a domain after a unit, in milliseconds.
    fn spacing(&self) -> u64 {
        millis(self.settings.spacing.draw(&mut self.rng.lock()))
    }

    /// Notes summaries of domains in the schedule. Returns the domains whose summary there is
    /// newer, of the notes that are [`Noting::IfNewer`].
    async fn note<'a>(
        &self,
        notes: Vec<Note<'a>>,
    ) -> Result<Vec<(&'a CrawlId, String)>, FrontierError> {
        /// The most domains of one script, which must not occupy a server for long.
        const DOMAINS_MAX: usize = 200;
        // The shard of the first domain is first, so that domains stay in their order.
        let mut shards: Vec<((&CrawlId, u32), Vec<Note>)> = Vec::new();
        for note in notes {
            let shard = (note.crawl, keys::shard_of(note.domain));
            match shards.iter_mut().find(|(of, _)| *of == shard) {
                Some((_, notes)) => notes.push(note),
                None => shards.push((shard, vec![note])),
            }
        }
        let (mut calls, mut crawls) = (Vec::new(), Vec::new());
        for ((crawl, shard), notes) in shards {
            for notes in notes.chunks(DOMAINS_MAX) {
                let mut call = Call::new(&scripts::NOTE, keys::shard(crawl, shard));
                for note in notes {
                    call.arg(note.domain)
                        .arg(&note.summary)
                        .arg(note.how.word());
                }
                calls.push(call);
                crawls.push(crawl);
            }
        }
        let mut older = Vec::new();
        for (crawl, answer) in crawls.into_iter().zip(self.runner.run(&calls).await) {
            let names: Vec<String> = read(answer)?;
            older.extend(names.into_iter().map(|name| (crawl, name)));
        }
        Ok(older)
    }
}

/// A summary of a domain for the schedule.
struct Note<'a> {
    crawl: &'a CrawlId,
    domain: &'a str,
    summary: String,
    how: Noting,
}

impl<'a> Note<'a> {
    /// A note that gives the domain the place that follows from its summary.
    fn new(crawl: &'a CrawlId, domain: &'a str, summary: String) -> Self {
        Self {
            crawl,
            domain,
            summary,
            how: Noting::Place(Duration::ZERO),
        }
    }
}

/// The effect of a note on a domain's place in the schedule.
#[derive(Clone, Copy)]
enum Noting {
    /// The domain gets the place that follows from its summary, but not before this time from now.
    Place(Duration),
    /// The same, if the summary is newer than the noted one.
    IfNewer,
}

impl Noting {
    fn word(self) -> String {
        match self {
            Self::Place(put_off) => millis(put_off).to_string(),
            Self::IfNewer => String::new(),
        }
    }
}

/// Reads the row of a crawl.
fn crawl_row(row: &str) -> (CrawlId, bool) {
    let (id, is_paused) = row.split_once(' ').unwrap_or((row, "0"));
    (CrawlId(id.to_owned()), is_paused == "1")
}

/// Reads an answer.
fn read<T: FromRedisValue>(answer: Result<Value, Trouble>) -> Result<T, FrontierError> {
    let value = answer.map_err(|why| unavailable(&why))?;
    from_redis_value(value).map_err(|why| FrontierError::Unavailable(why.to_string()))
}

fn unavailable(why: &Trouble) -> FrontierError {
    let text = why.to_string();
    // A stack trace of a script has several lines.
    FrontierError::Unavailable(text.lines().next().unwrap_or_default().to_owned())
}

fn odd(what: &str) -> FrontierError {
    FrontierError::Unavailable(format!("an unexpected answer about {what}"))
}

/// Returns whole milliseconds, at most a thousand years.
fn millis(length: Duration) -> u64 {
    const MOST: u128 = 1_000 * 366 * 24 * 3_600 * 1_000;
    length.as_millis().min(MOST) as u64
}

/// Returns a date of the servers' clock.
fn date(millis: u64) -> Date {
    Date::from_millis(millis).unwrap_or_default()
}
