//! Reads and changes of cells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use politely_store::{EngineError, Version, Write, Written};
use tokio::time::Instant;
use zookeeper_client::{Client, Error};

use crate::ZooKeeper;

/// How long the adapter remembers the version of a znode.
///
/// A znode that is created again starts with version 0. Its version reaches a remembered one after
/// 2^30 changes, which takes longer.
pub const REMEMBER: Duration = Duration::from_mins(1);

/// The number of remembered versions above which all are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;

/// The bytes of a request apart from the path and the value, rounded up.
const REQUEST: usize = 256;

/// The characters that a znode's name cannot have, and `%`.
const ENCODED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// The content of a znode that nobody else needs to see at once.
const SILENT: u8 = b'.';
/// The content of a znode whose subscribers get a notice.
const LOUD: u8 = b'!';

/// The versions of znodes, as last seen.
#[derive(Default)]
pub(crate) struct Known(HashMap<Arc<str>, (Version, i32, Instant)>);

impl Known {
    fn get(&self, cell: &str, expected: Version, now: Instant) -> Option<i32> {
        let (version, znode, seen) = self.0.get(cell)?;
        (*version == expected && now.duration_since(*seen) < REMEMBER).then_some(*znode)
    }

    fn insert(&mut self, cell: &Arc<str>, version: Version, znode: i32, now: Instant) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(Arc::clone(cell), (version, znode, now));
    }
}

/// A cell as read from its znode.
pub(crate) struct Found {
    pub(crate) value: Vec<u8>,
    pub(crate) is_loud: bool,
}

impl Found {
    pub(crate) fn new(mut data: Vec<u8>) -> Self {
        let is_loud = data.first() == Some(&LOUD);
        data.drain(..data.len().min(1));
        let value = data;
        Self { value, is_loud }
    }
}

impl ZooKeeper {
    /// Returns the path of the znode of a cell.
    pub(crate) fn path(&self, cell: &str) -> String {
        let name = utf8_percent_encode(cell, ENCODED);
        let name = match cell {
            "." => "%2E".to_owned(),
            ".." => "%2E%2E".to_owned(),
            _ => name.to_string(),
        };
        self.sessions.place().path(&format!("cells/{name}"))
    }

    pub(crate) async fn read_cells(
        &self,
        client: &Client,
        cells: &[Arc<str>],
    ) -> Vec<Result<Option<Vec<u8>>, EngineError>> {
        let Some(first) = cells.first() else {
            return Vec::new();
        };
        // The requests are sent in this order, and the server answers in the same order.
        let sync = client.sync(self.sessions.place().chroot_or_root());
        let reads = join_all(cells.iter().map(|cell| self.get(client, cell)));
        let (sync, found) = futures_util::join!(sync, reads);
        if let Err(why) = sync {
            let error = self.sessions.place().refused(&self.path(first), &why);
            return vec![Err(error); cells.len()];
        }
        found
    }

    /// Reads a cell and remembers the version of its znode.
    async fn get(&self, client: &Client, cell: &Arc<str>) -> Result<Option<Vec<u8>>, EngineError> {
        let path = self.path(cell);
        match client.get_data(&path).await {
            Ok((data, stat)) => {
                let value = Found::new(data).value;
                if let Some(version) = Version::of(&value) {
                    self.remember(cell, version, stat.version);
                }
                Ok(Some(value))
            }
            Err(Error::NoNode) => Ok(None),
            Err(why) => Err(self.sessions.place().refused(&path, &why)),
        }
    }

    /// Changes a cell.
    pub(crate) async fn change(
        &self,
        client: &Client,
        write: &Write,
    ) -> Result<Written, EngineError> {
        let path = self.path(&write.cell);
        let place = self.sessions.place();
        let mark = if write.notify { LOUD } else { SILENT };
        let data = [&[mark], &write.value[..]].concat();
        let bytes = data.len() + path.len() + REQUEST;
        // The server would close the connection, which also fails the requests of other cells.
        if bytes > place.max_bytes {
            let (cell, most) = (&write.cell, place.max_bytes);
            return Err(EngineError(format!(
                "cell {cell:?} needs a request of {bytes} bytes, above {most}; raise jute.maxbuffer on all servers, and max_bytes in the URL"
            )));
        }
        let Some(expected) = write.expected else {
            return match client.create(&path, &data, &place.persistent()).await {
                Ok((stat, _)) => Ok(self.done(write, stat.version)),
                Err(Error::NodeExists) => self.conflict(client, &write.cell).await,
                Err(why) => Err(place.refused(&path, &why)),
            };
        };
        let known = self.known.lock().get(&write.cell, expected, now());
        let znode = if let Some(znode) = known {
            znode
        } else {
            let found = self.conflict(client, &write.cell).await?;
            let is_expected = matches!(
                &found,
                Written::Conflict(Some(value)) if Version::of(value) == Some(expected)
            );
            let known = self.known.lock().get(&write.cell, expected, now());
            match known.filter(|_| is_expected) {
                Some(znode) => znode,
                None => return Ok(found),
            }
        };
        let set = if znode < self.renew_at {
            let set = client.set_data(&path, &data, Some(znode)).await;
            set.map(|stat| stat.version)
        } else {
            self.renew(client, &path, &data, znode).await
        };
        match set {
            Ok(version) => Ok(self.done(write, version)),
            Err(Error::BadVersion | Error::NoNode) => self.conflict(client, &write.cell).await,
            Err(why) => Err(place.refused(&path, &why)),
        }
    }

    /// Deletes the znode and creates it again, atomically, so that its version starts at 0.
    ///
    /// A version of -1 would mean any version.
    async fn renew(
        &self,
        client: &Client,
        path: &str,
        data: &[u8],
        znode: i32,
    ) -> Result<i32, Error> {
        let mut both = client.new_multi_writer();
        both.add_delete(path, Some(znode))?;
        both.add_create(path, data, &self.sessions.place().persistent())?;
        both.commit().await?;
        Ok(0)
    }

    fn done(&self, write: &Write, znode: i32) -> Written {
        if let Some(version) = Version::of(&write.value) {
            self.remember(&write.cell, version, znode);
        }
        Written::Done
    }

    async fn conflict(&self, client: &Client, cell: &Arc<str>) -> Result<Written, EngineError> {
        let mut found = self.read_cells(client, std::slice::from_ref(cell)).await;
        found.remove(0).map(Written::Conflict)
    }

    pub(crate) fn remember(&self, cell: &Arc<str>, version: Version, znode: i32) {
        self.known.lock().insert(cell, version, znode, now());
    }
}

/// Returns the time for the age of a remembered version, which no decision about a key uses.
#[expect(clippy::disallowed_methods, reason = "the age of a cache entry")]
fn now() -> Instant {
    Instant::now()
}
