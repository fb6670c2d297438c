//! What servers complain of, in their words, and what to do if that helps.

use redis::{RedisError, ServerError, Value};

use super::super::EngineError;
use super::CALL_TIME;
use super::servers::Server;

/// A server that cannot be reached, or did not answer in time.
pub(super) fn away(server: &Server, why: &RedisError) -> EngineError {
    let hint = match why.code() {
        Some(code) => advice(code, ""),
        None if why.kind() == redis::ErrorKind::AuthenticationFailed => LOGIN,
        None => "",
    };
    let why = if why.is_timeout() {
        "no answer in time".to_owned()
    } else {
        why.to_string()
    };
    EngineError(format!("{server}: {why}{hint}"))
}

/// A server that said no.
pub(super) fn refused(server: &Server, why: &ServerError) -> EngineError {
    let (code, details) = (why.code(), why.details().unwrap_or_default());
    let hint = advice(code, details);
    EngineError(format!("{server}: {code} {details}{hint}"))
}

/// Another server may say yes.
pub(super) fn is_elsewhere(why: &ServerError) -> bool {
    let codes = ["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING", "MOVED"];
    codes.contains(&why.code())
}

const LOGIN: &str = "; user and password belong into the URL: redis://user:password@host";

const RIGHTS: &str = "; the documentation of politely::cells::redis lists what its user needs";

fn advice(code: &str, details: &str) -> &'static str {
    match code {
        "READONLY" => {
            "; it is a replica: name its master, or use redis+sentinel:// or redis+cluster://"
        }
        "NOREPLICAS" => "; bring replicas back, or lower its min-replicas-to-write",
        "OOM" => "; raise its maxmemory",
        "LOADING" => "; it will answer when it has read its data",
        "NOAUTH" | "WRONGPASS" => LOGIN,
        "NOPERM" => RIGHTS,
        "ERR" if details.contains("executing the script can't run") => RIGHTS,
        "MOVED" | "ASK" => "; it is part of a cluster: use redis+cluster://",
        "CLUSTERDOWN" => "; some of its slots have no master",
        "WRONGTYPE" => "; somebody else uses the name of this cell: use another prefix",
        "ERR" if details.contains("cluster support disabled") => "; it is no cluster: use redis://",
        _ => "",
    }
}

pub(super) fn late() -> EngineError {
    EngineError(format!("no answer in {} s", CALL_TIME.as_secs()))
}

pub(super) fn too_few(server: &Server, replicas: usize) -> EngineError {
    EngineError(format!(
        "{server}: changed, but not acknowledged by {replicas} of its replicas in time"
    ))
}

pub(super) fn replica(server: &Server) -> EngineError {
    EngineError(format!(
        "{server}: it is a replica{}",
        advice("READONLY", "")
    ))
}

pub(super) fn unknown_master(server: &Server) -> EngineError {
    EngineError(format!(
        "{server}: this Sentinel knows no master of that name"
    ))
}

pub(super) fn unowned() -> EngineError {
    EngineError("no server owns the cell: the cluster is incomplete".to_owned())
}

pub(super) fn restless() -> EngineError {
    EngineError("the cell was moved again and again".to_owned())
}

/// Nothing that such a question is answered with.
pub(super) fn odd(answer: &Value) -> EngineError {
    let mut answer = format!("{answer:?}");
    answer.truncate(answer.floor_char_boundary(100));
    EngineError(format!("an answer that means nothing here: {answer}"))
}
