//! What servers complain of, in their words, and what to do if that helps.

use redis::{ErrorKind, RedisError, Value};

use crate::Server;

/// Why a command has no answer. It may have been carried out all the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Trouble {
    /// A server said no, said what means nothing, did not answer in time, or cannot be reached.
    #[error("{}: {}", .0, complaint(.1))]
    Server(Server, RedisError),
    /// Some slots of the cluster have no master.
    #[error("no server owns its slot: the cluster is incomplete")]
    NoOwner,
    /// Each of its owners named another one.
    #[error("it was moved again and again")]
    Restless,
    /// Who sees by the answer that nothing was changed may take it for one.
    #[error("{server}: changed, but not acknowledged by {replicas} of its replicas in time")]
    Unacknowledged {
        /// Who answered.
        server: Server,
        /// As many were to acknowledge.
        replicas: usize,
        /// What came.
        answer: Value,
    },
}

impl Trouble {
    /// The word that a server's complaint begins with: `NOSCRIPT`, `ERR`, …
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

/// Another server may say yes, or another connection.
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
