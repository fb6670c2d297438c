//! Orders of operators.

use std::time::Duration;

use politely_frontier::{CrawlName, Date, FrontierError};
use redis::cmd;

use super::keys::{self, CrawlId, SHARDS};
use super::scripts::{self, Call};
use super::take::answer;
use super::{Noting, RedisFrontier, millis};

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

    /// Sets the least pause between two units of a domain. Zero removes it.
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

    /// Pauses a crawl, or lets it go on. No domain of a paused crawl is handed out; units that are
    /// live go on.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer.
    pub async fn pause(&self, name: &CrawlName, is_paused: bool) -> Result<(), FrontierError> {
        let (id, _) = self.crawl(name).await?;
        let row = format!("{id} {}", u8::from(is_paused));
        let mut words = cmd("HSET");
        words.arg(keys::CRAWLS).arg(name.as_str()).arg(row);
        self.change_one::<u64>(keys::CRAWLS, words).await.map(drop)
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
                let names = found.into_iter().map(|(name, _)| name).collect();
                self.order_all(&id, names, "purge").await?;
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
        id: &CrawlId,
        names: Vec<String>,
        order: &str,
    ) -> Result<(), FrontierError> {
        let calls = names.iter().map(|name| self.order_call(id, name, order, 0));
        let calls: Vec<_> = calls.collect();
        let mut notes = Vec::with_capacity(names.len());
        for (name, reply) in names.into_iter().zip(self.runner.run(&calls).await) {
            let (_, summary, _) = answer(reply)?;
            notes.push((name, summary));
        }
        self.note(id, notes, Noting::NOW).await.map(drop)
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
        let mut words = cmd("HDEL");
        words.arg(keys::CRAWLS).arg(crawl.as_str());
        self.change_one::<u64>(keys::CRAWLS, words).await.map(drop)
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
        self.note(&id, vec![(domain.to_owned(), summary)], Noting::NOW)
            .await?;
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
