//! Reads and changes of cells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
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

/// The first byte of a znode whose writer asked for no notice.
const SILENT: u8 = b'.';
/// The first byte of a znode whose subscribers get a notice.
const LOUD: u8 = b'!';

/// The versions of znodes as last seen: the cell's version, the znode's version, and when.
pub(crate) type Known = HashMap<Arc<str>, (Version, i32, Instant)>;

/// Returns whether the subscribers of a cell get a notice, and the cell's value.
pub(crate) fn parse(mut data: Vec<u8>) -> (bool, Vec<u8>) {
    let is_loud = data.first() == Some(&LOUD);
    data.drain(..data.len().min(1));
    (is_loud, data)
}

impl ZooKeeper {
    /// Returns the path of the znode of a cell.
    pub(crate) fn path(&self, cell: &str) -> String {
        let name = match cell {
            "." => "%2E".to_owned(),
            ".." => "%2E%2E".to_owned(),
            _ => utf8_percent_encode(cell, ENCODED).to_string(),
        };
        self.sessions.place.path(&format!("cells/{name}"))
    }

    pub(crate) async fn read_cells(
        &self,
        client: &Client,
        cells: &[Arc<str>],
    ) -> Vec<Result<Option<Vec<u8>>, EngineError>> {
        // The requests are sent in this order, and the server answers in the same order.
        let sync = client.sync("/");
        let reads = join_all(cells.iter().map(|cell| self.get(client, cell)));
        match join(sync, reads).await {
            (Ok(()), found) => found,
            (Err(why), _) => vec![Err(self.sessions.place.refused("/", &why)); cells.len()],
        }
    }

    /// Reads a cell and remembers the version of its znode.
    async fn get(&self, client: &Client, cell: &Arc<str>) -> Result<Option<Vec<u8>>, EngineError> {
        let path = self.path(cell);
        match client.get_data(&path).await {
            Ok((data, stat)) => {
                let (_, value) = parse(data);
                self.remember(cell, &value, stat.version);
                Ok(Some(value))
            }
            Err(Error::NoNode) => Ok(None),
            Err(why) => Err(self.sessions.place.refused(&path, &why)),
        }
    }

    /// Changes a cell.
    pub(crate) async fn change(
        &self,
        client: &Client,
        write: &Write,
    ) -> Result<Written, EngineError> {
        let (path, place) = (self.path(&write.cell), &self.sessions.place);
        let mark = if write.notify { LOUD } else { SILENT };
        let data = [&[mark], &write.value[..]].concat();
        let (bytes, most) = (data.len() + path.len() + REQUEST, place.max_bytes);
        // The server would close the connection, which also fails the requests of other cells.
        if bytes > most {
            return Err(place.error(&format!(
                "cell {:?} needs a request of {bytes} bytes, above {most}; raise jute.maxbuffer of all servers, and max_bytes in the URL",
                write.cell
            )));
        }
        let changed = match write.expected {
            None => {
                let created = client.create(&path, &data, &place.persistent()).await;
                created.map(|(stat, _)| stat.version)
            }
            Some(expected) => {
                let mut known = self.recall(&write.cell, expected);
                if known.is_none() {
                    let found = self.conflict(client, &write.cell).await?;
                    known = self.recall(&write.cell, expected);
                    if known.is_none() {
                        return Ok(found);
                    }
                }
                self.set(client, &path, &data, known).await
            }
        };
        match changed {
            Ok(version) => {
                self.remember(&write.cell, &write.value, version);
                Ok(Written::Done)
            }
            Err(Error::NodeExists | Error::BadVersion | Error::NoNode) => {
                self.conflict(client, &write.cell).await
            }
            Err(why) => Err(place.refused(&path, &why)),
        }
    }

    /// Sets the data of a znode of version `known`, and returns its next version.
    ///
    /// Before a version overflows, this deletes the znode and creates it again, atomically. Its
    /// version then starts at 0.
    async fn set(
        &self,
        client: &Client,
        path: &str,
        data: &[u8],
        known: Option<i32>,
    ) -> Result<i32, Error> {
        if known < Some(self.renew_at) {
            return Ok(client.set_data(path, data, known).await?.version);
        }
        let mut both = client.new_multi_writer();
        both.add_delete(path, known)?;
        both.add_create(path, data, &self.sessions.place.persistent())?;
        both.commit().await?;
        Ok(0)
    }

    async fn conflict(&self, client: &Client, cell: &Arc<str>) -> Result<Written, EngineError> {
        let mut found = self.read_cells(client, std::slice::from_ref(cell)).await;
        found.remove(0).map(Written::Conflict)
    }

    /// Remembers the version of a cell's znode with this value.
    pub(crate) fn remember(&self, cell: &Arc<str>, value: &[u8], znode: i32) {
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        if let Some(version) = Version::of(value) {
            known.insert(Arc::clone(cell), (version, znode, now()));
        }
    }

    /// Returns the version of the znode of a cell that has the version `expected`.
    fn recall(&self, cell: &str, expected: Version) -> Option<i32> {
        let known = self.known.lock();
        let (version, znode, seen) = known.get(cell)?;
        (*version == expected && now().duration_since(*seen) < REMEMBER).then_some(*znode)
    }
}

/// Returns the time for the age of a remembered version, which no decision about a key uses.
#[expect(clippy::disallowed_methods, reason = "the age of a cache entry")]
fn now() -> Instant {
    Instant::now()
}
