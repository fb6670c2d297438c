//! The engines that store shared keys: the interface from `politely-store`, and the adapters.
//!
//! | engine | feature |
//! | --- | --- |
//! | [`Memory`]: one process, for tests and simulations | |
//! | `postgres::Postgres`: a table of `PostgreSQL` | `postgres` |
//! | `redis::Redis`: Redis and Valkey | `redis` |
//! | `zookeeper::ZooKeeper`: an ensemble of `ZooKeeper` servers | `zookeeper` |

pub use politely_store::{
    Engine, EngineError, Heartbeat, Memory, Notice, OnNotice, Pending, Risk, Severity, TimeSource,
    Version, Write, Written,
};

/// A table of a `PostgreSQL` server.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use politely_postgres::*;
}

/// Redis and Valkey: one server, a master behind Sentinels, or a cluster.
#[cfg(feature = "redis")]
pub mod redis {
    pub use politely_redis::engine::*;
}

/// An ensemble of `ZooKeeper` servers.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    pub use politely_zookeeper::*;
}

impl TimeSource for crate::clock::Clock {
    fn now(&self) -> politely_core::Timestamp {
        Self::now(self)
    }
}
