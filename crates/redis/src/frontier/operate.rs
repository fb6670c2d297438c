//! Orders of operators.

use std::num::NonZeroU32;
use std::time::Duration;

use politely_frontier::{CrawlName, Date, FrontierError};

use super::keys::{self, CrawlId, SHARDS};
use super::scripts::{self, Call};
use super::take::answer;
use super::{Note, RedisFrontier, millis, read};
use crate::Command;

impl RedisFrontier {
    /// Blocks a domain until a date, or unblocks it. A unit that is live goes on.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn block(
        &self,
        crawl: &CrawlName,
        domain: &str,
        until: Option<Date>,
    ) -> Result<(), FrontierError> {
        let until = until.unwrap_or_default().millis();
        self.order(crawl, domain, "block", until).await
    }

    /// Sets the least time from one take of a domain to the next. Zero removes it.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn delay(
        &self,
        crawl: &CrawlName,
        domain: &str,
        delay: Duration,
    ) -> Result<(), FrontierError> {
        self.order(crawl, domain, "delay", millis(delay)).await
    }

    /// Bounds the finished pages of a domain. When the bound is reached, the domain is not handed
    /// out until it is raised. `None` removes the bound. A unit that is live goes on.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn limit(
        &self,
        crawl: &CrawlName,
        domain: &str,
        finished_max: Option<NonZeroU32>,
    ) -> Result<(), FrontierError> {
        let most = finished_max.map_or(0, NonZeroU32::get);
        self.order(crawl, domain, "limit", most.into()).await
    }

    /// Ends all units of a crawl whose lease is over, so that its numbers are exact.
    pub(super) async fn end_expired(&self, id: &CrawlId) -> Result<(), FrontierError> {
        /// The most domains of one shard at a time.
        const DOMAINS_MAX: usize = 1_000;
        /// The clocks of two servers differ, so a domain may not know yet that a lease is over.
        const ROUNDS_MAX: usize = 100;
        let call = |shard| {
            let [.., owned] = keys::shard(id, shard);
            let mut call = Call::new(&scripts::ENDED, [owned]);
            call.number(DOMAINS_MAX);
            call
        };
        let calls: Vec<_> = (0..SHARDS).map(call).collect();
        for _ in 0..ROUNDS_MAX {
            let mut names = Vec::new();
            for answer in self.runner.run(&calls).await {
                names.extend(
                    read::<Vec<String>>(answer)?
                        .into_iter()
                        .map(|name| (id, name)),
                );
            }
            if names.is_empty() {
                break;
            }
            self.order_all(names, "expire").await?;
        }
        Ok(())
    }

    /// Pauses a crawl, or lets it go on. No domain of a paused crawl is handed out; units that are
    /// live go on.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer.
    pub async fn pause(&self, name: &CrawlName, is_paused: bool) -> Result<(), FrontierError> {
        let (id, _) = self.crawl(name).await?;
        let row = format!("{id} {}", u8::from(is_paused));
        let set = Command::new("HSET", keys::CRAWLS)
            .arg(name.as_str())
            .arg(row);
        self.change_one::<u64>(set).await.map(drop)
    }

    /// Removes the pages that wait, of a domain or of a whole crawl, and ends its units. The pages
    /// stay known, so they are not added again.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer. Some domains of the
    /// crawl may be purged then.
    pub async fn purge(
        &self,
        crawl: &CrawlName,
        domain: Option<&str>,
    ) -> Result<(), FrontierError> {
        if let Some(domain) = domain {
            return self.order(crawl, domain, "purge", 0).await;
        }
        let (id, _) = self.crawl(crawl).await?;
        for shard in 0..SHARDS {
            let mut cursor = 0;
            loop {
                let (next, found) = self.scan_summaries(&id, shard, cursor).await?;
                let domains = found.into_iter().map(|(name, _)| (&id, name)).collect();
                self.order_all(domains, "purge").await?;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Carries out an order about several domains, whether they exist or not.
    pub(super) async fn order_all(
        &self,
        domains: Vec<(&CrawlId, String)>,
        order: &str,
    ) -> Result<(), FrontierError> {
        let calls = domains
            .iter()
            .map(|(id, name)| self.order_call(id, name, order, self.spacing()));
        let calls: Vec<_> = calls.collect();
        let mut notes = Vec::with_capacity(domains.len());
        for ((id, name), reply) in domains.iter().zip(self.runner.run(&calls).await) {
            let (_, summary, _) = answer(reply)?;
            notes.push(Note::new(id, name, summary));
        }
        self.note(notes).await.map(drop)
    }

    /// Deletes a domain or a whole crawl, and ends its units. Its pages are forgotten, so they are
    /// new if they are added again. [`RedisFrontier::mend`] frees the space of a crawl.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if a server does not answer.
    pub async fn delete(
        &self,
        crawl: &CrawlName,
        domain: Option<&str>,
    ) -> Result<(), FrontierError> {
        if let Some(domain) = domain {
            return self.order(crawl, domain, "delete", 0).await;
        }
        self.crawl(crawl).await?;
        let delete = Command::new("HDEL", keys::CRAWLS).arg(crawl.as_str());
        self.change_one::<u64>(delete).await.map(drop)
    }

    async fn order(
        &self,
        crawl: &CrawlName,
        domain: &str,
        order: &str,
        number: u64,
    ) -> Result<(), FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        let call = self.order_call(&id, domain, order, number);
        let (kind, summary, _) = answer(self.runner.run_one(call).await)?;
        self.note(vec![Note::new(&id, domain, summary)]).await?;
        if kind == "x" {
            return Err(FrontierError::UnknownDomain(
                crawl.clone(),
                domain.to_owned(),
            ));
        }
        Ok(())
    }

    fn order_call(&self, id: &CrawlId, domain: &str, order: &str, number: u64) -> Call {
        let mut call = self.domain_call(&scripts::OPERATE, id, domain);
        call.arg(order).number(number);
        call
    }
}
