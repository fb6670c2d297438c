//! The engine's time and run.
//!
//! A run is the `run_id` of the process that is master, which a restart changes and a replica does not share; of a cluster, those of
//! all masters together, in no order.

use futures_util::future::join_all;
use politely_core::Timestamp;
use redis::{ErrorKind, InfoDict, RedisResult, ServerErrorKind, Value, from_redis_value, pipe};

use super::super::{EngineError, Pulse};
use super::Redis;
use super::links::Purpose;

impl Redis {
    pub(super) async fn look(&self, epoch: &str) -> Result<Pulse, EngineError> {
        let owners = self.owners().await;
        let owner = self.owner(&owners, epoch)?;
        let owners = owners?;
        let all = &owners.all;
        let mut questions = pipe();
        questions.cmd("TIME");
        questions.cmd("INFO").arg("server");
        questions.cmd("INFO").arg("replication");
        questions.cmd("GET").arg(epoch);
        let asked = all
            .iter()
            .map(|server| self.send(server, Purpose::Calls, &questions));
        let (mut run, mut of_owner) = (0, None);
        for (server, answers) in all.iter().zip(join_all(asked).await) {
            let pulse = of(answers?, *server == owner).map_err(|why| self.refused(server, &why))?;
            run ^= pulse.run;
            if *server == owner {
                of_owner = Some(pulse);
            }
        }
        let of_owner = of_owner.expect("it is one of all");
        Ok(Pulse { run, ..of_owner })
    }
}

/// One master's. The cell is not there for those that do not own it.
fn of(mut answers: Vec<Value>, is_owner: bool) -> RedisResult<Pulse> {
    let epoch = answers.pop().filter(|_| is_owner).unwrap_or(Value::Nil);
    let answers = Value::Array(answers).extract_error()?;
    let ((seconds, micros), about, role): ((u64, u64), InfoDict, InfoDict) =
        from_redis_value(answers)?;
    if role.get("role") != Some("master".to_owned()) {
        let replica = "it is a replica".to_owned();
        return Err((ErrorKind::Server(ServerErrorKind::ReadOnly), "", replica).into());
    }
    let id: Option<String> = about.get("run_id");
    let run = id.and_then(|id| u64::from_str_radix(id.get(..16)?, 16).ok());
    Ok(Pulse {
        time: Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)),
        run: run.ok_or((ErrorKind::UnexpectedReturnType, "INFO says no run_id"))?,
        epoch: from_redis_value(epoch.extract_error()?)?,
    })
}
