//! The session with the ensemble, and the znodes that belong to no cell.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use politely_store::EngineError;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::url::Place;

/// After this time without contact, the ensemble ends the session and removes its member.
const TIMEOUT: Duration = Duration::from_secs(6);

type Opening = Shared<BoxFuture<'static, Result<Client, EngineError>>>;

/// The current session, opened when it is needed.
pub(crate) struct Sessions {
    pub(crate) place: Arc<Place>,
    pub(crate) opening: Mutex<Option<Opening>>,
}

impl Sessions {
    /// Returns the client of a session that is connected.
    ///
    /// Requests of a disconnected session would be sent later, when the caller has given up.
    pub(crate) async fn client(&self) -> Result<Client, EngineError> {
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
        let is_over = match opening.as_ref().and_then(Shared::peek) {
            Some(Ok(client)) => client.state().is_terminated(),
            Some(Err(_)) => true,
            None => false,
        };
        if is_over {
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
    pub(crate) async fn touch_member(&self, client: &Client) -> Result<u64, EngineError> {
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
    pub(crate) async fn run(&self, client: &Client) -> Result<u64, EngineError> {
        let path = self.place.path("run");
        let stat = client.check_stat(&path).await;
        let stat = stat.and_then(|stat| stat.ok_or(Error::NoNode));
        let stat = stat.map_err(|why| self.refused(&path, &why))?;
        // Two ensembles may give the same transaction id, but hardly in the same millisecond.
        Ok((stat.ctime as u64).rotate_left(20) ^ stat.czxid as u64)
    }

    /// Returns the error. If a znode was deleted, the next session creates it again.
    fn refused(&self, path: &str, why: &Error) -> EngineError {
        if *why == Error::NoNode {
            *self.opening.lock() = None;
        }
        self.place.refused(path, why)
    }
}

async fn open(place: Arc<Place>) -> Result<Client, EngineError> {
    let connector = Client::connector().with_session_timeout(TIMEOUT);
    let connector = match &place.login {
        Some(login) => connector.with_auth("digest", login.as_bytes()),
        None => connector,
    };
    let client = connector.with_fail_eagerly().connect(&place.servers).await;
    let client = client.map_err(|why| match why {
        Error::NoHosts | Error::Timeout => {
            place.error("no server accepts a session; start a majority of the servers")
        }
        why => place.error(&why.to_string()),
    })?;
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
        if self.login.is_some() {
            Acls::creator_all()
        } else {
            Acls::anyone_all()
        }
    }

    pub(crate) fn persistent(&self) -> CreateOptions<'static> {
        CreateMode::Persistent.with_acls(self.acls())
    }

    /// Returns the error of a request about the znode `path`.
    pub(crate) fn refused(&self, path: &str, why: &Error) -> EngineError {
        let advice = match why {
            Error::NoAuth => {
                "; log in as the user that its ACL allows, or change its ACL (docs/how-to/run-a-fleet.md)"
            }
            Error::NoNode => "; it was deleted, and the next session creates it",
            Error::QuotaExceeded => "; raise its quota",
            _ => "",
        };
        self.error(&format!("znode {path:?}: {why}{advice}"))
    }

    pub(crate) fn error(&self, what: &str) -> EngineError {
        EngineError(format!("ZooKeeper at {}: {what}", self.servers))
    }
}
