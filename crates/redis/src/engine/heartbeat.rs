//! The heartbeat: the engine's time and run.
//!
//! The run is the `run_id` of the master's process. A restart changes it, and a replica has another
//! one. The run of a cluster combines the ids of all its masters, in no order.

use std::sync::atomic::Ordering;

use politely_core::Timestamp;
use redis::{ErrorKind, InfoDict, RedisResult, ServerErrorKind, Value, from_redis_value, pipe};

use super::Redis;
use politely_store::{EngineError, Heartbeat};

impl Redis {
    pub(super) async fn look(&self, epoch: &str) -> Result<Heartbeat, EngineError> {
        let mut questions = pipe();
        questions.cmd("TIME");
        questions.cmd("INFO").arg("server");
        questions.cmd("INFO").arg("replication");
        questions.cmd("GET").arg(epoch);
        let read = |_: &_, answers, is_owner| of(answers, is_owner);
        let (owner, others) = self.servers.masters(epoch, &questions, read).await?;
        let run = others.iter().fold(owner.run, |run, other| run ^ other.run);
        self.is_in(run);
        Ok(Heartbeat { run, ..owner })
    }

    /// Notes the id of the run. Another run may have a newer server or another user, so what the
    /// last one refused is tried again.
    fn is_in(&self, run: u64) {
        if self.run.swap(run, Ordering::Relaxed) != run {
            self.plain.store(false, Ordering::Relaxed);
            self.hides_config.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the heartbeat of one master. Only the owner of the cell has its value.
fn of(mut answers: Vec<Value>, is_owner: bool) -> RedisResult<Heartbeat> {
    let epoch = answers.pop().filter(|_| is_owner).unwrap_or(Value::Nil);
    let answers = Value::Array(answers).extract_error()?;
    let ((seconds, micros), about, role): ((u64, u64), InfoDict, InfoDict) =
        from_redis_value(answers)?;
    if role.get("role") != Some("master".to_owned()) {
        let replica = "by its own word".to_owned();
        return Err((ErrorKind::Server(ServerErrorKind::ReadOnly), "", replica).into());
    }
    let id: Option<String> = about.get("run_id");
    let run = id.and_then(|id| u64::from_str_radix(id.get(..16)?, 16).ok());
    Ok(Heartbeat {
        time: Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)),
        run: run.ok_or((ErrorKind::UnexpectedReturnType, "INFO says no run_id"))?,
        epoch: from_redis_value(epoch.extract_error()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_is_asked_in_its_own_words_again() {
        let redis = Redis::connect("redis://a").unwrap();
        redis.is_in(1);
        redis.plain.store(true, Ordering::Relaxed);
        redis.is_in(1);
        assert!(redis.plain.load(Ordering::Relaxed), "it is the same");
        redis.is_in(2);
        assert!(!redis.plain.load(Ordering::Relaxed));
    }
}
