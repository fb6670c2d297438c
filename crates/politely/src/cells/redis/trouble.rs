//! What servers complain of, in their words, and what to do if that helps.

use redis::{ErrorKind, RedisError};

use super::super::EngineError;
use super::links::Server;

/// A server that said no, said what means nothing, did not answer in time, or cannot be reached.
pub(super) fn complaint(server: &Server, why: &RedisError) -> EngineError {
    let details = why.detail().unwrap_or_default();
    let (said, hint) = match why.code() {
        Some(code) => (format!("{code} {details}"), advice(code, details)),
        None if why.is_timeout() => ("no answer in time".to_owned(), ""),
        None if why.kind() == ErrorKind::AuthenticationFailed => (why.to_string(), LOGIN),
        None => (why.to_string(), ""),
    };
    EngineError(format!("{server}: {said}{hint}"))
}

/// Another server may say yes, or another connection.
pub(super) fn is_elsewhere(why: &RedisError) -> bool {
    let codes = ["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING", "MOVED"];
    why.code().is_none_or(|code| codes.contains(&code))
}

const LOGIN: &str = "; user and password belong into the URL: redis://user:password@host";
const RIGHTS: &str = "; the documentation of politely::cells::redis lists what its user needs";
const REPLICA: &str =
    "; it is a replica: name its master, or use redis+sentinel:// or redis+cluster://";

fn advice(code: &str, details: &str) -> &'static str {
    match code {
        "READONLY" => REPLICA,
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
