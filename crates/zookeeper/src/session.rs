//! The session with the ensemble, and the znodes that belong to no cell.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use politely_store::EngineError;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState, Stat};

use crate::url::Place;

/// After this time without contact, the ensemble ends the session and removes its member.
const TIMEOUT: Duration = Duration::from_secs(6);

type Opening = Shared<BoxFuture<'static, Result<Client, EngineError>>>;

/// The current session, opened when it is needed.
pub(crate) struct Sessions {
    place: Arc<Place>,
    opening: Mutex<Option<Opening>>,
}

impl Sessions {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place: Arc::new(place),
            opening: Mutex::default(),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the client of a session that is connected.
    ///
    /// Requests of a disconnected session would be sent later, when the caller has given up.
    pub(crate) async fn client(&self) -> Result<Client, EngineError> {
        let opening = self.current();
        let client = opening.await?;
        match client.state() {
            SessionState::SyncConnected => Ok(client),
            state => Err(self.place.error(format!("the session is {state}"))),
        }
    }

    /// Returns the opening of the current session. If it failed or the session ended, this starts
    /// another one. A task completes it even if the caller gives up.
    fn current(&self) -> Opening {
        let mut opening = self.opening.lock();
        let is_over = |opening: &Opening| match opening.peek() {
            Some(Ok(client)) => client.state().is_terminated(),
            Some(Err(_)) => true,
            None => false,
        };
        match &*opening {
            Some(current) if !is_over(current) => current.clone(),
            _ => {
                let task = tokio::spawn(open(Arc::clone(&self.place)));
                let opened = async {
                    task.await
                        .unwrap_or_else(|why| Err(EngineError(why.to_string())))
                };
                opening.insert(opened.boxed().shared()).clone()
            }
        }
    }

    /// Writes the member's znode and returns the leader's time, in milliseconds.
    pub(crate) async fn touch_member(&self, client: &Client) -> Result<u64, EngineError> {
        let path = self.place.member(client);
        let stat = match client.set_data(&path, &member(), None).await {
            Err(Error::NoNode) => create_member(&self.place, client).await,
            stat => stat,
        };
        let stat = stat.map_err(|why| self.place.refused(&path, &why))?;
        Ok(stat.mtime as u64)
    }

    /// Returns the id of the ensemble's data.
    pub(crate) async fn run(&self, client: &Client) -> Result<u64, EngineError> {
        let path = self.place.path("run");
        let stat = client.check_stat(&path).await;
        let stat = stat.map_err(|why| self.place.refused(&path, &why))?;
        let stat = stat.ok_or_else(|| self.place.refused(&path, &Error::NoNode))?;
        // Two ensembles may give the same transaction id, but hardly in the same millisecond.
        Ok((stat.ctime as u64).rotate_left(20) ^ stat.czxid as u64)
    }
}

async fn open(place: Arc<Place>) -> Result<Client, EngineError> {
    let mut connector = Client::connector()
        .with_session_timeout(TIMEOUT)
        .with_fail_eagerly();
    if let Some(login) = &place.login {
        connector = connector.with_auth("digest", login.as_bytes());
    }
    let client = connector.connect(&place.servers).await;
    let client = client.map_err(|why| match why {
        Error::NoHosts | Error::Timeout => {
            place.error("no server accepts a session: they do not run, or have no quorum")
        }
        why => place.error(why.to_string()),
    })?;
    for name in ["cells", "members", "run"] {
        let path = place.path(name);
        let made = client.mkdir(&path, &place.persistent()).await;
        made.map_err(|why| place.refused(&path, &why))?;
    }
    let made = create_member(&place, &client).await;
    made.map_err(|why| place.refused(&place.member(&client), &why))?;
    Ok(client)
}

async fn create_member(place: &Place, client: &Client) -> Result<Stat, Error> {
    let options = CreateMode::Ephemeral.with_acls(place.acls());
    let path = place.member(client);
    let (stat, _) = client.create(&path, &member(), &options).await?;
    Ok(stat)
}

/// Returns the content of a member's znode.
fn member() -> Vec<u8> {
    format!("pid {}", std::process::id()).into_bytes()
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.chroot)
    }

    /// Returns the path above all znodes.
    pub(crate) fn chroot_or_root(&self) -> &str {
        if self.chroot.is_empty() {
            "/"
        } else {
            &self.chroot
        }
    }

    fn member(&self, client: &Client) -> String {
        self.path(&format!("members/{:016x}", client.session_id().0))
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
                "; log in as the user that its ACL allows, or set its ACL (docs/how-to/run-a-fleet.md)"
            }
            Error::NoNode => "; restart politely, which creates it",
            Error::QuotaExceeded => "; raise its quota",
            _ => "",
        };
        self.error(format!("znode {path:?}: {why}{advice}"))
    }

    fn error(&self, what: impl std::fmt::Display) -> EngineError {
        EngineError(format!("ZooKeeper at {}: {what}", self.servers))
    }
}
