//! Sends commands for many keys of Redis or Valkey at once, each to the owner of its key.
//!
//! The servers are one server, the master that Sentinels name, or a cluster.
//!
//! redis-rs has clients for Sentinels and for clusters, which do not fit here. Its cluster client
//! takes pipelines of one slot only. Of a thousand changes, each would be a command of its own with
//! its own `WAIT`. If the two were sent apart, a new connection between them would acknowledge a
//! change that was never sent. Its Sentinel client reads the Sentinels' answers in order, so that
//! one that hangs delays a call by a second. Hence [`Servers`], which uses redis-rs' connections,
//! slots, parsers and errors.
//!
//! ```no_run
//! use politely_redis::{Command, Servers, redis::cmd};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = Servers::connect("redis+cluster://127.0.0.1:7000?wait=1")?;
//! let commands = ["one", "two"].map(|key| Command {
//!     key,
//!     words: cmd("INCR").arg(key).to_owned(),
//! });
//! for answer in servers.change(commands.into()).await {
//!     println!("{:?}", answer?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | file | its part |
//! | --- | --- |
//! | `url.rs` | the meaning of a URL |
//! | `links.rs` | a connection to each server for each purpose |
//! | `link.rs` | one connection, which is opened again after it broke |
//! | `owners.rs` | the server that owns a key |
//! | `each.rs` | the commands of a call, sent again if a key moved |
//! | `trouble.rs` | errors of servers, with advice |
//! | [`frontier`] | a frontier that several processes share (feature `frontier`) |
//! | [`engine`] | shared keys of `politely-store` in these servers |
//!
//! # What is not here
//!
//! This crate decides nothing about limits. To limit requests over Redis, use `politely::Limiter`
//! with its feature `redis`. Permits are granted in `politely-store` (`Replica::serve`); this crate
//! carries out its reads and writes. To send commands for one key, use the crate `redis`.

mod each;
pub mod engine;
#[cfg(feature = "frontier")]
pub mod frontier;
mod link;
mod links;
mod owners;
mod trouble;
mod url;

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redis::PushInfo;

use self::links::Links;
use self::owners::Owners;
use self::url::Place;

pub use self::each::Command;
pub use self::links::Server;
pub use self::trouble::Trouble;
pub use self::url::UrlError;
/// The crate of the commands and answers in this interface.
pub use redis;

/// One server, or the servers that Sentinels or a cluster name.
///
/// Connections are opened when they are needed, and again after they broke, so servers may come and
/// go. A call on a broken connection fails, and the next call opens another. Each call ends within
/// seconds. All calls must be made on one Tokio runtime. One call should have at most some
/// thousands of commands, because it must be answered within half a second.
pub struct Servers {
    place: Place,
    hear: OnceLock<Arc<dyn Fn(PushInfo) + Send + Sync>>,
    links: Mutex<Links>,
    /// The known owners. `None` means that the next call asks for them.
    owners: Mutex<Option<Arc<Owners>>>,
}

impl Servers {
    /// Creates a client for the servers of `url`. It connects at the first call.
    ///
    /// The scheme is `redis://`, `redis+sentinel://` or `redis+cluster://`, or the same with
    /// `rediss` for TLS.
    ///
    /// # Errors
    ///
    /// [`UrlError`] if the URL is invalid, or if the file of its `ca` cannot be read.
    pub fn connect(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            place: Place::parse(url)?,
            hear: OnceLock::new(),
            links: Mutex::default(),
            owners: Mutex::default(),
        })
    }

    /// Sets how many replicas must acknowledge the changes of [`Servers::change`] (`WAIT`, at most
    /// 0.3 s). The default is the number in the URL (`?wait=1`), else 0.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.place.replicas = replicas;
        self
    }

    /// Calls `hear` with each message that a server pushes.
    ///
    /// [`redis::PushKind::Disconnection`] means that messages of every channel may be lost until it
    /// is subscribed to again. Call this once, before all other calls; a second call has no effect.
    pub fn listen(&self, hear: impl Fn(PushInfo) + Send + Sync + 'static) {
        let _ = self.hear.set(Arc::new(hear));
    }
}
