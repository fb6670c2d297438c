//! Reads and changes of cells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use politely_store::{Version, Write, Written};
use tokio::time::Instant;
use zookeeper_client::{Client, Error};

use crate::{Result, ZooKeeper};

/// How long the adapter remembers the version of a znode.
///
/// A znode that is created again starts with version 0. Its version reaches a remembered one after
/// 2^30 changes, which takes longer.
pub const REMEMBER: Duration = Duration::from_mins(1);

/// The number of remembered versions above which all are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;

/// The bytes of a request apart from the path and the value, rounded up.
const REQUEST: usize = 256;

/// Characters that are percent-encoded in the name of a znode: those that `ZooKeeper` refuses, the
/// separator of paths, and `%` itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// The first byte of a znode whose writer asked for no notice.
const SILENT: u8 = b'.';
/// The first byte of a znode whose subscribers get a notice.
const LOUD: u8 = b'!';

/// The value of a cell, `None` if it does not exist.
pub(crate) type Value = Option<Vec<u8>>;

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
        let name = utf8_percent_encode(cell, ENCODED);
        self.place.path(&format!("cells/{name}"))
    }

    pub(crate) async fn read_all(&self, client: &Client, cells: &[Arc<str>]) -> Vec<Result<Value>> {
        // The requests are sent in this order, and the server answers in the same order.
        let sync = client.sync("/");
        let reads = join_all(cells.iter().map(|cell| self.get(client, cell)));
        match join(sync, reads).await {
            (Ok(()), found) => found,
            (Err(why), _) => vec![Err(self.refused("/", &why)); cells.len()],
        }
    }

    /// Reads a cell, at least as recent as the answers of the session so far, and remembers the
    /// version of its znode.
    pub(crate) async fn get(&self, client: &Client, cell: &Arc<str>) -> Result<Value> {
        let path = self.path(cell);
        match client.get_data(&path).await {
            Ok((data, stat)) => {
                let (_, value) = parse(data);
                self.remember(cell, &value, stat.version);
                Ok(Some(value))
            }
            Err(Error::NoNode) => Ok(None),
            Err(why) => Err(self.refused(&path, &why)),
        }
    }

    /// Changes a cell.
    pub(crate) async fn change(&self, client: &Client, write: &Write) -> Result<Written> {
        let (place, cell) = (&self.place, &write.cell);
        let path = self.path(cell);
        let mark = if write.notify { LOUD } else { SILENT };
        let data = [&[mark], &write.value[..]].concat();
        let (bytes, most) = (data.len() + path.len() + REQUEST, place.max_bytes);
        // The server would close the connection, which also fails the requests of other cells.
        if bytes > most {
            let what = format!("cell {cell:?} needs a request of {bytes} bytes, above {most}");
            return Err(place.error(&(what + "; raise the servers' jute.maxbuffer and max_bytes")));
        }
        let changed = match write.expected {
            None => {
                let created = client.create(&path, &data, &place.persistent()).await;
                created.map(|(stat, _)| stat.version)
            }
            Some(expected) => {
                let (mut known, mut found) = (self.recall(cell, expected), None);
                if known.is_none() {
                    found = self.read_all(client, &[Arc::clone(cell)]).await.remove(0)?;
                    known = self.recall(cell, expected);
                }
                let Some(znode) = known else {
                    return Ok(Written::Conflict(found));
                };
                self.set(client, &path, &data, znode).await
            }
        };
        match changed {
            Ok(version) => {
                self.remember(cell, &write.value, version);
                Ok(Written::Done)
            }
            // Without its parent, a cell cannot be created.
            Err(why @ Error::NoNode) if write.expected.is_none() => Err(self.refused(&path, &why)),
            // The session orders the read after the refusal, so it finds at least that version.
            Err(Error::NodeExists | Error::BadVersion | Error::NoNode) => {
                self.get(client, cell).await.map(Written::Conflict)
            }
            Err(why) => Err(self.refused(&path, &why)),
        }
    }

    /// Sets the data of a znode of version `at`, and returns its next version.
    ///
    /// Before a version overflows, this deletes the znode and creates it again, atomically. Its
    /// version then starts at 0.
    async fn set(&self, client: &Client, path: &str, data: &[u8], at: i32) -> Result<i32, Error> {
        if at < self.renew_at {
            return Ok(client.set_data(path, data, Some(at)).await?.version);
        }
        let mut both = client.new_multi_writer();
        both.add_delete(path, Some(at))?;
        both.add_create(path, data, &self.place.persistent())?;
        both.commit().await?;
        Ok(0)
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
