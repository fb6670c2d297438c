//! Commands for many keys of Redis or Valkey at once, each sent to whoever owns its key: one server, the master that Sentinels
//! name, or a cluster's owner.
//!
//! redis-rs has clients for Sentinels and for clusters. Its cluster client takes pipelines of one slot only, so that of a thousand
//! changes each would be a command of its own, with a `WAIT` of its own to wait for; sent apart, a connection made anew between a change
//! and its `WAIT` would acknowledge what was never sent. Its Sentinel client takes Sentinels' answers in order, so that one that hangs
//! costs a call its second. Hence [`Servers`], on redis-rs' connections, slots, parsers and errors.
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
//! | `url.rs` | what a URL says |
//! | `links.rs` | a connection to each server for each use |
//! | `link.rs` | one connection, made again when it broke |
//! | `owners.rs` | which server owns a key |
//! | `each.rs` | a call's commands, sent there, again if a key moved |
//! | `trouble.rs` | what servers complain of, and what to do |
//! | [`engine`] | shared keys of `politely-store` in these servers |

mod each;
pub mod engine;
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
/// Commands and answers are its own.
pub use redis;

/// One server, or those that Sentinels or a cluster's servers name.
///
/// Connections are made when they are needed and again when they broke, so servers may come and go. A call with a broken
/// connection fails, the next one makes another; each ends within seconds. All calls are to be made on one tokio runtime.
/// One call should have thousands of commands at most: it has half a second to be answered.
pub struct Servers {
    place: Place,
    hear: OnceLock<Arc<dyn Fn(PushInfo) + Send + Sync>>,
    links: Mutex<Links>,
    /// Unless they are to be asked for.
    owners: Mutex<Option<Arc<Owners>>>,
}

impl Servers {
    /// Those behind `url`: `redis://`, `redis+sentinel://` or `redis+cluster://`, or `rediss` for TLS. Talks to nobody yet.
    ///
    /// # Errors
    ///
    /// [`UrlError`] if the URL means nothing, or the file of its `ca` cannot be read.
    pub fn connect(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            place: Place::parse(url)?,
            hear: OnceLock::new(),
            links: Mutex::default(),
            owners: Mutex::default(),
        })
    }

    /// How many replicas are to acknowledge what [`Servers::change`] changes (`WAIT`, at most 0.3 s). Default: what the URL says
    /// (`?wait=1`), else 0.
    #[must_use]
    pub fn wait(mut self, replicas: usize) -> Self {
        self.place.replicas = replicas;
        self
    }

    /// From now on `hear` is called with what servers say unasked. [`redis::PushKind::Disconnection`]: nothing may be heard of any channel until
    /// it is subscribed to again. To be called once, before all else; who calls again is not heard.
    pub fn listen(&self, hear: impl Fn(PushInfo) + Send + Sync + 'static) {
        let _ = self.hear.set(Arc::new(hear));
    }
}
