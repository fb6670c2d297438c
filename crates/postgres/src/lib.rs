//! The engine of `politely-store` in `PostgreSQL`, 14 or later.
//!
//! | URL | meaning |
//! | --- | --- |
//! | `postgres://user:password@host/database` | one server |
//! | `postgres://user@h1,h2/database` | the one of several servers that takes writes |
//! | `…?sslmode=require` | TLS; the certificate is checked against the roots of this machine |
//! | `…?sslmode=require&sslrootcert=FILE` | TLS; against the roots in FILE (PEM) |
//!
//! Further parameters are those of libpq that `tokio-postgres` knows, such as `connect_timeout`,
//! `application_name` and `options`. There is one table, which the first connection creates:
//!
//! | column of `politely_cells` | content |
//! | --- | --- |
//! | `name` | the name of the cell |
//! | `value` | its value, which begins with its version |
//! | `expires` | if it is not changed until then, the row may be deleted |
//!
//! In a name, `%`, control characters and non-ASCII bytes are percent-encoded.
//!
//! A batch of changes is one statement, and so one commit. It updates each row whose value has the
//! expected version, and inserts the rows that must not exist. It locks rows in the order of their
//! names, so that no two batches wait for one another. All requests share one connection.
//!
//! A notice is a `NOTIFY` with the cell's name; each subscriber then reads the cell. The engine's
//! time is the server's clock. Its run is the start of the server's process, because a standby that
//! was promoted may lack commits.
//!
//! | file | its part |
//! | --- | --- |
//! | `url.rs` | the meaning of a URL |
//! | `connection.rs` | the connection, made again after it was lost; its notices |
//! | `tls.rs` | TLS for the connection |
//! | `cells.rs` | reads and changes of cells |
//!
//! # What is not here
//!
//! This crate decides nothing about limits. To limit requests over `PostgreSQL`, use
//! `politely::Limiter` with its feature `postgres`. Permits are granted in `politely-store`
//! (`Replica::serve`); this crate carries out its reads and writes.

mod cells;
mod connection;
mod tls;
mod url;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_store::{
    Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Risk, Severity, Write, Written,
};

use self::connection::Opening;
use self::url::Place;

pub use self::url::UrlError;

/// Cells in a table of a `PostgreSQL` server.
///
/// The engine connects at the first call, and again after the connection was lost. A call without a
/// connection fails at once. Dropping the engine closes the connection. All calls must be made on
/// one Tokio runtime.
pub struct Postgres {
    place: Arc<Place>,
    opening: Mutex<Option<Opening>>,
    on_notice: OnceLock<OnNotice>,
    watched: Arc<Mutex<HashSet<Arc<str>>>>,
}

pub(crate) type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The value of a cell, `None` if it does not exist.
pub(crate) type Value = Option<Vec<u8>>;

impl Postgres {
    /// Creates an engine for the server of `url` (see the module). It connects at the first call.
    ///
    /// # Errors
    ///
    /// [`UrlError`] if the URL is invalid, or if its file of certificates cannot be used.
    pub fn connect(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            place: Arc::new(Place::parse(url)?),
            opening: Mutex::default(),
            on_notice: OnceLock::new(),
            watched: Arc::default(),
        })
    }
}

impl Engine for Postgres {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Value>>> {
        Box::pin(async move {
            let found = async { self.session().await?.read(&cells).await };
            match found.await {
                Ok(found) => found.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); cells.len()],
            }
        })
    }

    fn compare_and_set(&self, writes: Vec<Write>) -> Pending<'_, Vec<Result<Written>>> {
        Box::pin(async move {
            match self.session().await {
                Ok(session) => session.change(&writes).await,
                Err(error) => vec![Err(error); writes.len()],
            }
        })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat>> {
        Box::pin(async move {
            let session = self.session().await?;
            let time = Timestamp::from_micros(session.time_us().await?);
            let epoch = session.read(&[epoch]).await?.pop().flatten();
            let run = session.run;
            Ok(Heartbeat { time, run, epoch })
        })
    }

    fn listen(&self, on_notice: OnNotice) {
        let _ = self.on_notice.set(on_notice);
    }

    fn watch(&self, more: Vec<Arc<str>>, less: Vec<Arc<str>>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            for cell in less {
                self.watched.lock().remove(&cell);
            }
            let Some(on_notice) = self.on_notice.get().filter(|_| !more.is_empty()) else {
                return Ok(());
            };
            let session = self.session().await?;
            self.watched.lock().extend(more.iter().cloned());
            // The cells may have changed since the subscriber read them. Values that it knows do no
            // harm.
            let found = session.read(&more).await?;
            for (cell, value) in more.iter().zip(found) {
                if let Some(value) = value {
                    let cell = cell.to_string();
                    on_notice(Notice::Written { cell, value });
                }
            }
            Ok(())
        })
    }

    /// Each session sets `synchronous_commit`, so only the server's own settings are left.
    fn risks(&self) -> Pending<'_, Result<Vec<Risk>>> {
        Box::pin(async move {
            let off = self.session().await?.settings_that_are_off().await?;
            let risk = |setting: String| Risk {
                severity: Severity::Warning,
                text: format!(
                    "PostgreSQL at {}: {setting} = off loses acknowledged writes when its machine fails; set {setting} = on",
                    self.place.servers
                ),
            };
            Ok(off.into_iter().map(risk).collect())
        })
    }
}
