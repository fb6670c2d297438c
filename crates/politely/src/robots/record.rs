//! An origin's entry as text, so that a restarted run resumes with the robots.txt it had fetched.
//!
//! A record is a small robots.txt: the normalised rules of one group, under a head line with the
//! product token and the expiry. So there is no second format and no second parser, a record is a
//! fraction of the file, and a person can read it. The head line contains a version. A reader of
//! another version rejects the record and fetches again.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use thiserror::Error;

use super::cache::{Entry, RETRY_MAX};
use super::{Availability, Origin, Robots, RobotsCache, parse};

/// First word of a record. The number changes when the same file would be read differently.
const HEAD: &str = "politely-robots/1";

/// The reason why a record was rejected. In each case, fetch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Written by another version, or no record at all.
    #[error("not a robots record of this version")]
    Version,
    /// Holds the rules of another product token.
    #[error("the record is for another product token")]
    Agent,
    /// The head line is damaged.
    #[error("the record's head is malformed")]
    Malformed,
}

impl RobotsCache {
    /// Returns the entry of `origin` as a record, or `None` if there is no answer yet. `unix_secs`
    /// is the wall clock at `now`. A record outlives the clock of the process, so its times are
    /// absolute.
    pub fn save(&self, origin: &Origin, now: Timestamp, unix_secs: u64) -> Option<String> {
        let entry = self.entries.get(origin)?;
        let copy = entry.copy.as_deref();
        let kind = match copy.map(Robots::availability) {
            Some(Availability::Rules) => "rules",
            Some(_) => "unavailable",
            None if entry.failures > 0 => "unreachable",
            None => return None,
        };
        let due = unix_secs.saturating_add(entry.due.since(now).as_secs());
        let mut record = format!(
            "{HEAD} {kind} due={due} failures={} agent={}\n",
            entry.failures, self.agent
        );
        if let Some(robots) = copy {
            record.push_str("User-agent: *\n");
            for rule in &robots.rules {
                record.push_str(rule.line());
                record.push('\n');
            }
            if let Some(delay) = robots.crawl_delay {
                // Writing to a string cannot fail.
                let _ = writeln!(record, "Crawl-delay: {}", delay.as_secs_f64());
            }
        }
        Some(record)
    }

    /// Restores a record of [`save`](Self::save). An expired copy is kept in case the origin is
    /// unreachable, but the next lookup returns `Fetch`. If the wall clock was set back, the record
    /// is valid for at most one whole TTL (or backoff).
    pub fn restore(
        &mut self,
        origin: &Origin,
        record: &str,
        now: Timestamp,
        unix_secs: u64,
    ) -> Result<(), RecordError> {
        let (head, rules) = record.split_once('\n').unwrap_or((record, ""));
        let mut words = head.split(' ');
        if words.next() != Some(HEAD) {
            return Err(RecordError::Version);
        }
        let kind = words.next().ok_or(RecordError::Malformed)?;
        let mut named = |name| {
            words
                .next()
                .and_then(|word| word.strip_prefix(name))
                .ok_or(RecordError::Malformed)
        };
        let due: u64 = named("due=")?.parse().map_err(|_| RecordError::Malformed)?;
        let failures: u32 = named("failures=")?
            .parse()
            .map_err(|_| RecordError::Malformed)?;
        if named("agent=")? != self.agent {
            return Err(RecordError::Agent);
        }
        let copy = match kind {
            "rules" => Some(parse::parse_text(rules.as_bytes(), "")),
            "unavailable" => Some(Robots::from_response(Some(404), &[], "")),
            "unreachable" if failures > 0 => None,
            _ => return Err(RecordError::Malformed),
        };
        let longest = if failures > 0 { RETRY_MAX } else { self.ttl };
        let left = Duration::from_secs(due.saturating_sub(unix_secs)).min(longest);
        let entry = Entry {
            copy: copy.map(Arc::new),
            due: now + left,
            failures,
            fetching: false,
        };
        self.put(origin.clone(), entry, now);
        Ok(())
    }
}
