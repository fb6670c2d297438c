//! The engine's time and run.
//!
//! A run is the `run_id` of the process that is master, which a restart changes and a replica does not share; of a cluster, those of
//! all masters together, in no order.

use futures_util::future::join_all;
use politely_core::Timestamp;
use redis::{Value, pipe};

use super::super::{EngineError, Pulse};
use super::servers::{Purpose, Server, Servers};
use super::{bytes, trouble};

impl Servers {
    pub(super) async fn pulse(&self, epoch: &str) -> Result<Pulse, EngineError> {
        let (owner, all) = self
            .owners(|owners| (owners.of(epoch), owners.all()))
            .await?;
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
            let [time, about, role, value] =
                <[Value; 4]>::try_from(answers?).map_err(|odd| trouble::odd(&Value::Array(odd)))?;
            let about = self.text(server, about)?;
            let role = self.text(server, role)?;
            if field(&role, "role:") != Some("master") {
                self.forget();
                return Err(trouble::replica(server));
            }
            let id = field(&about, "run_id:").and_then(|id| id.get(..16));
            let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
            run ^= id.ok_or_else(|| trouble::odd(&Value::SimpleString(about)))?;
            if Some(server) == owner.as_ref() {
                of_owner = Some((server, time, value));
            }
        }
        let (server, time, value) = of_owner.ok_or_else(|| {
            self.forget();
            trouble::unowned()
        })?;
        if let Value::ServerError(why) = value {
            return Err(self.refused(server, &why));
        }
        Ok(Pulse {
            time: timestamp(&time).ok_or_else(|| trouble::odd(&time))?,
            run,
            epoch: bytes(value).map_err(|odd| trouble::odd(&odd))?,
        })
    }

    fn text(&self, server: &Server, answer: Value) -> Result<String, EngineError> {
        match answer {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Value::ServerError(why) => Err(self.refused(server, &why)),
            odd => Err(trouble::odd(&odd)),
        }
    }
}

/// Of `INFO`: a line's rest.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name))
}

/// Of `TIME`: seconds and microseconds since 1970.
fn timestamp(answer: &Value) -> Option<Timestamp> {
    let number = |value: &Value| match value {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = answer.as_sequence()? else {
        return None;
    };
    let micros = number(seconds)?.checked_mul(1_000_000)? + number(micros)?;
    Some(Timestamp::from_micros(micros))
}
