//! The settings of the servers that lose acknowledged writes: eviction and persistence.
//!
//! `INFO` tells most of them, and the heartbeat needs it anyway. Hosted services often forbid
//! `CONFIG GET`, which tells whether there are snapshots and when the log is synced.
//!
//! Every cell has an expiry, so the policies `volatile-*` evict cells like the others. A policy
//! without `maxmemory` never evicts. A replica is an error of the heartbeat.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use redis::{FromRedisValue, InfoDict, Value, from_redis_value, pipe};

use super::Redis;
use crate::Server;
use politely_store::{EngineError, Risk, Severity};

impl Redis {
    pub(super) async fn find_risks(&self) -> Result<Vec<Risk>, EngineError> {
        let mut questions = pipe();
        questions.cmd("INFO").arg("memory");
        questions.cmd("INFO").arg("persistence");
        if !self.hides_config.load(Ordering::Relaxed) {
            questions.cmd("CONFIG").arg("GET").arg("save");
            questions.cmd("CONFIG").arg("GET").arg("appendfsync");
        }
        let read = |server: &Server, answers: Vec<Value>, _| {
            let settings = Settings::read(answers);
            if settings.save.is_none() {
                self.hides_config.store(true, Ordering::Relaxed);
            }
            let risks = [settings.eviction(), settings.persistence()];
            let of_server = |(severity, what)| Risk {
                severity,
                text: format!("{server} {what}"),
            };
            Ok(risks.into_iter().flatten().map(of_server).collect())
        };
        // Any key has an owner, and all masters are asked.
        let (one, others): (Vec<_>, Vec<_>) = self.servers.masters("", &questions, read).await?;
        Ok(one
            .into_iter()
            .chain(others.into_iter().flatten())
            .collect())
    }
}

/// What a server tells of its settings. `None`: it does not tell.
#[derive(Debug, Default)]
struct Settings {
    maxmemory: Option<u64>,
    policy: Option<String>,
    has_log: Option<u8>,
    save: Option<String>,
    appendfsync: Option<String>,
}

impl Settings {
    fn read(answers: Vec<Value>) -> Self {
        let mut answers = answers.into_iter();
        let memory: Option<InfoDict> = next(&mut answers);
        let persistence: Option<InfoDict> = next(&mut answers);
        let mut setting = || {
            next::<HashMap<String, String>>(&mut answers)?
                .into_values()
                .next()
        };
        Self {
            maxmemory: memory.as_ref().and_then(|info| info.get("maxmemory")),
            policy: memory.and_then(|info| info.get("maxmemory_policy")),
            has_log: persistence.and_then(|info| info.get("aof_enabled")),
            save: setting(),
            appendfsync: setting(),
        }
    }

    fn eviction(&self) -> Option<(Severity, String)> {
        match self.policy.as_deref() {
            Some("noeviction") => None,
            Some(_) if self.maxmemory == Some(0) => None,
            Some(policy) => Some((
                Severity::Critical,
                format!(
                    "has maxmemory-policy {policy}, and evicts what it acknowledged when its memory is full; set it to noeviction (CONFIG SET maxmemory-policy noeviction)"
                ),
            )),
            None => Some((
                Severity::Warning,
                "does not tell its maxmemory-policy; make sure that it is noeviction".to_owned(),
            )),
        }
    }

    fn persistence(&self) -> Option<(Severity, String)> {
        let save = self.save.as_deref();
        let what = match (self.has_log, save, self.appendfsync.as_deref()) {
            (Some(1), _, Some("no")) => {
                "has appendfsync no: a power failure loses what it acknowledged up to half a minute before; set it to everysec or always"
            }
            (Some(1), ..) => return None,
            (Some(_), Some(""), _) => {
                "has appendonly no and save \"\": a restart loses all that it acknowledged; set appendonly to yes"
            }
            (Some(_), ..) => {
                "has appendonly no: a restart loses what it acknowledged since its last snapshot; set appendonly to yes"
            }
            (None, ..) => {
                "does not tell whether it has appendonly yes; a restart may lose what it acknowledged"
            }
        };
        Some((Severity::Warning, what.to_owned()))
    }
}

/// Returns the next answer, `None` if it is an error or something else.
fn next<T: FromRedisValue>(answers: &mut impl Iterator<Item = Value>) -> Option<T> {
    from_redis_value(answers.next()?.extract_error().ok()?).ok()
}
