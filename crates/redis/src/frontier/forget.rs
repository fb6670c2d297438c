//! Forgets pages by their age.

use std::time::Duration;

use politely_frontier::{CrawlName, FrontierError};
use redis::from_redis_value;

use super::keys::CrawlId;
use super::scripts;
use super::take::answer;
use super::{Note, RedisFrontier, millis, odd};

/// The most domains whose names are read at a time.
const DOMAINS_MAX: usize = 1_000;
/// About how many pages one script looks at. A script must not occupy a server for long.
const PAGES_MAX: usize = 1_000;

impl RedisFrontier {
    /// Forgets pages that were added before `age`, of a domain or of a whole crawl, and returns how
    /// many. They are new if they are added again. Pages of live units stay.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if a server does not answer. Some pages may be forgotten
    /// then.
    pub async fn forget(
        &self,
        crawl: &CrawlName,
        domain: Option<&str>,
        age: Duration,
    ) -> Result<u64, FrontierError> {
        let (id, _) = self.crawl(crawl).await?;
        if let Some(domain) = domain {
            return self.forget_pages(&id, domain, age).await;
        }
        let mut forgotten = 0;
        let mut after = String::new();
        loop {
            let domains = self.domains(crawl, &after, DOMAINS_MAX).await?;
            let Some(last) = domains.last() else {
                return Ok(forgotten);
            };
            after.clone_from(&last.name);
            for domain in domains {
                forgotten += self.forget_pages(&id, &domain.name, age).await?;
            }
        }
    }

    async fn forget_pages(
        &self,
        id: &CrawlId,
        domain: &str,
        age: Duration,
    ) -> Result<u64, FrontierError> {
        let mut forgotten = 0;
        let mut cursor = "0".to_owned();
        loop {
            let mut call = self.domain_call(&scripts::FORGET, id, domain);
            call.number(millis(age)).arg(&cursor).number(PAGES_MAX);
            let (_, summary, more) = answer(self.runner.run_one(call).await)?;
            let (next, count): (String, u64) =
                from_redis_value(more).map_err(|_| odd("forgotten pages"))?;
            forgotten += count;
            if count > 0 {
                self.note_changed(vec![Note::new(id, domain, summary)])
                    .await;
            }
            if next == "0" {
                return Ok(forgotten);
            }
            cursor = next;
        }
    }
}
