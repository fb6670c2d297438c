//! Errors of servers in their own words, with advice where it helps.

use redis::{ErrorKind, RedisError, Value};

use crate::Server;

/// Why a command has no answer. The command may have been executed nevertheless.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Trouble {
    /// A server returned an error or an unreadable answer, did not answer in time, or cannot be
    /// reached.
    #[error("{}: {}", .0, complaint(.1))]
    Server(Server, RedisError),
    /// Some slots of the cluster have no master.
    #[error("no server owns its slot: the cluster is incomplete")]
    NoOwner,
    /// Each owner of the key named another one.
    #[error("it was moved again and again")]
    Restless,
    /// Too few replicas acknowledged the change. If the answer shows that nothing changed, the
    /// caller may accept it.
    #[error("{server}: changed, but not acknowledged by {replicas} of its replicas in time")]
    Unacknowledged {
        /// The server that answered.
        server: Server,
        /// The number of replicas that had to acknowledge.
        replicas: usize,
        /// The server's answer.
        answer: Value,
    },
}

impl Trouble {
    /// Returns the code of a server's error: `NOSCRIPT`, `ERR`, …
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Server(_, why) => why.code(),
            _ => None,
        }
    }
}

fn complaint(why: &RedisError) -> String {
    let details = why.detail().unwrap_or_default();
    let (said, hint) = match why.code() {
        Some(code) => (format!("{code} {details}"), advice(code, details)),
        None if why.is_timeout() => ("no answer in time".to_owned(), ""),
        None if why.kind() == ErrorKind::AuthenticationFailed => (why.to_string(), LOGIN),
        None => (why.to_string(), ""),
    };
    said + hint
}

/// Returns whether another server, or another connection, may accept the command.
pub(crate) fn is_elsewhere(why: &RedisError) -> bool {
    let codes = ["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING", "MOVED"];
    why.code().is_none_or(|code| codes.contains(&code))
}

const LOGIN: &str = "; user and password belong into the URL: redis://user:password@host";
const REPLICA: &str =
    "; it is a replica: name its master, or use redis+sentinel:// or redis+cluster://";

fn advice(code: &str, details: &str) -> &'static str {
    match code {
        "READONLY" => REPLICA,
        "NOREPLICAS" => "; bring replicas back, or lower its min-replicas-to-write",
        "OOM" => "; raise its maxmemory",
        "LOADING" => "; it will answer when it has read its data",
        "NOAUTH" | "WRONGPASS" => LOGIN,
        "MOVED" | "ASK" => "; it is part of a cluster: use redis+cluster://",
        "CLUSTERDOWN" => "; some of its slots have no master",
        "ERR" if details.contains("cluster support disabled") => "; it is no cluster: use redis://",
        _ => "",
    }
}
