//! Repairs the schedule, and frees the space of deleted crawls, by walking over all keys.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use politely_frontier::FrontierError;
use redis::{from_redis_value, pipe};

use super::keys::{self, CrawlId, Place};
use super::look::found;
use super::{Note, Noting, RedisFrontier, millis, odd, unavailable};
use crate::Command;
use crate::links::Purpose;

impl RedisFrontier {
    /// Claims the walk of [`RedisFrontier::mend`] for `length`. Returns whether no process had it.
    /// So the load on the servers does not grow with the number of processes.
    ///
    /// # Errors
    /// Fails if a server does not answer.
    pub async fn claim_mend(&self, length: Duration) -> Result<bool, FrontierError> {
        let claim = Command::new("SET", keys::MEND_TURN).arg(1).arg("NX");
        let length = millis(length).max(1);
        self.change_one(claim.arg("PX").arg(length)).await
    }

    /// Looks at about `keys_max` keys of each server, and goes on where the last call ended, of
    /// any process. Notes each domain in the schedule whose summary there is older, and deletes
    /// keys of crawls that were deleted.
    ///
    /// # Errors
    /// Fails if a server does not answer.
    pub async fn mend(&self, keys_max: usize) -> Result<(), FrontierError> {
        let servers = &self.runner.servers;
        let owners = servers.owners().await.map_err(|why| unavailable(&why))?;
        let key = keys::MEND_CURSORS;
        let cursors: HashMap<String, u64> = self.ask(Command::new("HGETALL", key)).await?;
        let mut places = Command::new("HSET", key);
        let mut names: HashSet<String> = HashSet::new();
        for server in &owners.all {
            let place = server.to_string();
            let cursor = cursors.get(&place).copied().unwrap_or(0);
            let mut scan = pipe();
            let command = scan.cmd("SCAN").arg(cursor).arg("MATCH").arg("pf:{*");
            command.arg("COUNT").arg(keys_max);
            let sent = servers.send(server, Purpose::Calls, &scan).await;
            let mut answers = sent.map_err(|why| unavailable(&why))?;
            let answer = answers.pop().ok_or_else(|| odd("the keys"))?;
            let (next, found): (u64, Vec<String>) = from_redis_value(answer)
                .map_err(|why| FrontierError::Unavailable(why.to_string()))?;
            names.extend(found);
            places.words.arg(place).arg(next);
        }
        let mended = self.mend_keys(names).await;
        // The walk also goes on after an error. It comes back to all keys.
        self.change_one::<u64>(places).await?;
        mended
    }

    async fn mend_keys(&self, names: HashSet<String>) -> Result<(), FrontierError> {
        if names.is_empty() {
            return Ok(());
        }
        // The crawls are read after the keys, so that a key of a new crawl has its crawl.
        let live: HashSet<CrawlId> = self
            .crawl_rows()
            .await?
            .into_iter()
            .map(|(_, id, _)| id)
            .collect();
        self.served.lock().retain(|id, _| live.contains(id));
        let mut domains = Vec::new();
        let mut dead = Vec::new();
        for name in names {
            match keys::place(&name) {
                Some(Place::Domain(id, domain)) if live.contains(&id) => domains.push((id, domain)),
                Some(Place::Domain(id, domain)) => dead.extend(keys::domain(&id, &domain)),
                Some(Place::Shard(id)) if !live.contains(&id) => dead.push(name),
                _ => {}
            }
        }
        let unlinks = dead.iter().map(|key| Command::new("UNLINK", key));
        for answer in self.runner.servers.change(unlinks.collect()).await {
            answer.map_err(|why| unavailable(&why))?;
        }
        let answers = self.runner.run(&self.look_calls(domains.iter())).await;
        let mut notes = Vec::with_capacity(domains.len());
        for ((id, domain), answer) in domains.iter().zip(answers) {
            if let Some(found) = found(answer)? {
                notes.push(Note {
                    how: Noting::IfNewer,
                    ..Note::new(id, domain, found.summary)
                });
            }
        }
        // A server that lost data may have an older state of a domain than the schedule. A new
        // version makes the schedule follow it.
        let older = self.note(notes).await?;
        self.order_all(older, "touch").await
    }
}
