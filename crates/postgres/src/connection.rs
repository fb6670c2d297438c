//! The connection to the server, made again after it was lost, and the notices that it brings.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use politely_store::{EngineError, Notice, OnNotice};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Socket, Statement};

use crate::cells::{CHANGE, READ, cell_of};
use crate::tls::Stream;
use crate::url::Place;
use crate::{Postgres, Result};

/// How often a connection deletes the rows of cells that expired.
const SWEEP: Duration = Duration::from_hours(1);

/// The most rows that are deleted at a time, so that other requests wait for a moment only.
const SWEPT_MAX: i64 = 1_000;

/// Deletes expired rows, unless a change locks them.
const SWEEP_SOME: &str = "DELETE FROM politely_cells WHERE name IN (
    SELECT name FROM politely_cells WHERE expires < clock_timestamp()
    LIMIT $1 FOR UPDATE SKIP LOCKED)";

/// What each connection does first. A row is changed often, so each page keeps room for its next
/// version. The start of a value is compared, so values are not compressed. Two processes must not
/// create the table at once.
const BEGIN: &str = "
SET synchronous_commit = on;
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('politely_cells'));
    IF to_regclass('politely_cells') IS NULL THEN
        CREATE TABLE politely_cells (
            name text COLLATE \"C\" PRIMARY KEY,
            value bytea NOT NULL,
            expires timestamptz NOT NULL
        ) WITH (fillfactor = 50);
        ALTER TABLE politely_cells ALTER COLUMN value SET STORAGE EXTERNAL;
    END IF;
END $$";

const START: &str = "; start it, or correct the URL";

const ABOUT: &str = "
SELECT 'politely_' || md5(current_schema()),
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

pub(crate) type Opening = Shared<BoxFuture<'static, Result<Arc<Session>>>>;

/// A connection, and what the server is asked for by way of it.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) place: Arc<Place>,
    /// The channel of notices, one for each schema of a database.
    pub(crate) channel: String,
    /// The id of the server's run.
    pub(crate) run: u64,
    pub(crate) read: Statement,
    pub(crate) change: Statement,
    pub(crate) time: Statement,
    driving: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Postgres {
    /// Returns the session of the current connection. If it failed or was lost, this opens another.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        let opening = {
            let mut opening = self.opening.lock();
            let is_over =
                |it: &Result<Arc<Session>>| it.as_ref().map_or(true, |it| it.client.is_closed());
            if opening.as_ref().and_then(Shared::peek).is_some_and(is_over) {
                *opening = None;
            }
            opening.get_or_insert_with(|| self.open()).clone()
        };
        opening.await
    }

    fn open(&self) -> Opening {
        let place = Arc::clone(&self.place);
        let notices = self.on_notice.get().map(|on_notice| Notices {
            on_notice: Arc::clone(on_notice),
            watched: Arc::clone(&self.watched),
        });
        // The task completes the opening even if the caller gives up.
        let task = tokio::spawn(open(place, notices));
        let opened = task.map(|it| it.unwrap_or_else(|why| Err(EngineError(why.to_string()))));
        opened.boxed().shared()
    }
}

async fn open(place: Arc<Place>, notices: Option<Notices>) -> Result<Arc<Session>> {
    let connected = place.config.connect(place.tls.clone()).await;
    let (client, connection) = connected.map_err(|why| {
        let advice = if why.is_closed() || why.as_db_error().is_none() {
            START
        } else {
            ""
        };
        EngineError(place.refused(&why).0 + advice)
    })?;
    let (sender, names) = unbounded_channel();
    let driving = tokio::spawn(drive(connection, sender, notices.clone()));
    let prepared = prepare(&client, notices.is_some()).await;
    let (channel, run, [read, change, time]) = prepared.map_err(|why| place.refused(&why))?;
    let session = Arc::new(Session {
        client,
        place,
        channel,
        run,
        read,
        change,
        time,
        driving: driving.abort_handle(),
    });
    let weak = Arc::downgrade(&session);
    tokio::spawn(async move {
        // The first ends with the connection.
        tokio::select! {
            () = hear(&weak, names, notices) => {}
            () = sweep(&weak) => {}
        }
    });
    Ok(session)
}

async fn prepare(
    client: &Client,
    is_listening: bool,
) -> Result<(String, u64, [Statement; 3]), Error> {
    client.batch_execute(BEGIN).await?;
    let about = client.query_one(ABOUT, &[]).await?;
    let (channel, started): (String, i64) = (about.get(0), about.get(1));
    if is_listening {
        client.batch_execute(&format!("LISTEN {channel}")).await?;
    }
    let statements = [
        client.prepare(READ).await?,
        client.prepare(CHANGE).await?,
        client.prepare(TIME).await?,
    ];
    Ok((channel, started.cast_unsigned(), statements))
}

/// Carries out the requests of a connection until it ends, and passes on the names in its notices.
async fn drive(
    mut connection: Connection<Socket, Stream>,
    names: UnboundedSender<String>,
    notices: Option<Notices>,
) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notice) = message {
            // The receiver ends with the session.
            let _ = names.send(notice.payload().to_owned());
        }
    }
    if let Some(notices) = notices {
        notices.watched.lock().clear();
        (notices.on_notice)(Notice::Unheard { cell: None });
    }
}

/// Reads the cells that notices name, until the connection ends.
async fn hear(
    session: &Weak<Session>,
    mut names: UnboundedReceiver<String>,
    notices: Option<Notices>,
) {
    while let Some(name) = names.recv().await {
        let more = std::iter::from_fn(|| names.try_recv().ok());
        let cells: HashSet<_> = more.chain([name]).map(|name| cell_of(&name)).collect();
        if let (Some(session), Some(notices)) = (session.upgrade(), &notices) {
            notices.tell(&session, cells).await;
        }
    }
}

/// Deletes expired rows now and then.
async fn sweep(session: &Weak<Session>) {
    let mut due = tokio::time::interval(SWEEP);
    loop {
        due.tick().await;
        while let Some(session) = session.upgrade() {
            let swept = session.client.execute(SWEEP_SOME, &[&SWEPT_MAX]).await;
            // After an error the next sweep deletes as well.
            if swept.unwrap_or_default() < SWEPT_MAX as u64 {
                break;
            }
        }
    }
}

/// Where notices go.
#[derive(Clone)]
struct Notices {
    on_notice: OnNotice,
    watched: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl Notices {
    async fn tell(&self, session: &Session, mut cells: HashSet<Arc<str>>) {
        let is_watched = |cell: &Arc<str>| self.watched.lock().contains(cell);
        cells.retain(is_watched);
        let cells: Vec<_> = cells.into_iter().collect();
        if cells.is_empty() {
            return;
        }
        match session.read(&cells).await {
            Ok(found) => {
                for (cell, value) in cells.iter().zip(found) {
                    if let Some(value) = value {
                        let cell = cell.to_string();
                        (self.on_notice)(Notice::Written { cell, value });
                    }
                }
            }
            // The cells must be read, and watched, again.
            Err(_) => {
                for cell in cells {
                    self.watched.lock().remove(&cell);
                    let cell = Some(cell.to_string());
                    (self.on_notice)(Notice::Unheard { cell });
                }
            }
        }
    }
}
