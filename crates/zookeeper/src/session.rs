//! The session with the ensemble, and the znodes that belong to no cell.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use politely_store::EngineError;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::url::Place;
use crate::{Result, ZooKeeper};

/// After this time without contact, the ensemble ends the session and removes its member.
const TIMEOUT: Duration = Duration::from_secs(6);

const LOGIN: &str = "; log in as the user that its ACL allows (docs/how-to/run-a-fleet.md)";
const NO_SESSION: &str = "no server accepts a session; start a majority of the servers";

pub(crate) type Opening = Shared<BoxFuture<'static, Result<Client>>>;

impl ZooKeeper {
    /// Returns the client of a session that is connected.
    ///
    /// Requests of a disconnected session would be sent later, when the caller has given up.
    pub(crate) async fn client(&self) -> Result<Client> {
        let opening = self.current();
        let client = opening.await?;
        match client.state() {
            SessionState::SyncConnected => Ok(client),
            state => Err(self.place.error(&format!("the session is {state}"))),
        }
    }

    /// Returns the opening of the current session. If it failed or the session ended, this starts
    /// another one.
    fn current(&self) -> Opening {
        let mut opening = self.opening.lock();
        let has_ended = |client: &Client| client.state().is_terminated();
        let is_over = |opened: &Result<Client>| opened.as_ref().ok().is_none_or(has_ended);
        if opening.as_ref().and_then(Shared::peek).is_some_and(is_over) {
            *opening = None;
        }
        let start = || {
            // The task completes the opening even if the caller gives up.
            let task = tokio::spawn(open(Arc::clone(&self.place)));
            let opened = task.map(|it| it.unwrap_or_else(|why| Err(EngineError(why.to_string()))));
            opened.boxed().shared()
        };
        opening.get_or_insert_with(start).clone()
    }

    /// Writes the member's znode and returns the leader's time, in milliseconds.
    pub(crate) async fn touch_member(&self, client: &Client) -> Result<u64> {
        let name = format!("members/{:016x}", client.session_id().0);
        let (path, pid) = (self.place.path(&name), std::process::id().to_string());
        let stat = match client.set_data(&path, pid.as_bytes(), None).await {
            Err(Error::NoNode) => {
                let ephemeral = CreateMode::Ephemeral.with_acls(self.place.acls());
                let created = client.create(&path, pid.as_bytes(), &ephemeral).await;
                created.map(|(stat, _)| stat)
            }
            stat => stat,
        };
        let stat = stat.map_err(|why| self.refused(&path, &why))?;
        Ok(stat.mtime as u64)
    }

    /// Returns the id of the ensemble's data.
    pub(crate) async fn run(&self, client: &Client) -> Result<u64> {
        let path = self.place.path("run");
        let found = client.get_data(&path).await;
        let (_, stat) = found.map_err(|why| self.refused(&path, &why))?;
        // Two ensembles may give the same transaction id, but hardly in the same millisecond.
        Ok((stat.ctime as u64).rotate_left(20) ^ stat.czxid as u64)
    }

    /// Returns the error of a request about the znode `path`. If a znode that each session creates
    /// is missing, this ends the session.
    pub(crate) fn refused(&self, path: &str, why: &Error) -> EngineError {
        if *why == Error::NoNode {
            *self.opening.lock() = None;
        }
        self.place.refused(path, why)
    }
}

async fn open(place: Arc<Place>) -> Result<Client> {
    let mut connector = Client::connector()
        .with_session_timeout(TIMEOUT)
        .with_fail_eagerly();
    if let Some(login) = &place.login {
        connector = connector.with_auth("digest", login.as_bytes());
    }
    let client = connector.connect(&place.servers).await;
    let client = client.map_err(|why| place.error(&format!("{NO_SESSION} ({why})")))?;
    for name in ["cells", "members", "run"] {
        let path = place.path(name);
        let made = client.mkdir(&path, &place.persistent()).await;
        made.map_err(|why| place.refused(&path, &why))?;
    }
    Ok(client)
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.chroot)
    }

    fn acls(&self) -> Acls<'static> {
        match self.login {
            Some(_) => Acls::creator_all(),
            None => Acls::anyone_all(),
        }
    }

    pub(crate) fn persistent(&self) -> CreateOptions<'static> {
        CreateMode::Persistent.with_acls(self.acls())
    }

    fn refused(&self, path: &str, why: &Error) -> EngineError {
        let advice = match why {
            Error::NoAuth => LOGIN,
            Error::NoNode => "; it was deleted, and the next session creates it",
            _ => "",
        };
        self.error(&format!("znode {path:?}: {why}{advice}"))
    }

    pub(crate) fn error(&self, what: &str) -> EngineError {
        EngineError(format!("ZooKeeper at {}: {what}", self.servers))
    }
}
