//! Which servers there are, and who owns a cell.
//!
//! | file | its part |
//! | --- | --- |
//! | `place.rs` | what a URL says |
//! | `link.rs` | one connection, made when needed |
//! | `each.rs` | one command per cell, sent to whoever owns it, again if it moved |
//!
//! redis-rs has clients for Sentinel and for clusters. Its cluster client sends a pipeline to one server only if all
//! keys hash alike, and its Sentinel client takes their answers in order, so that one that hangs costs the whole second of a call:
//! hence our own, on its connections, slots and errors.

mod each;
mod link;
mod place;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::cluster_routing::Slot;
use redis::{Pipeline, ProtocolVersion, RedisResult, ServerError, Value, pipe};

use super::notices::Ears;
use super::trouble;
use crate::cells::EngineError;

use self::link::Link;
use self::place::Kind;

pub(super) use self::each::{How, Question};
pub(super) use self::link::Purpose;
pub use self::place::RedisError;
pub(super) use self::place::{Place, Server};

pub(super) struct Servers {
    place: Place,
    pub(super) ears: Arc<Ears>,
    links: Mutex<HashMap<(Server, Purpose), Arc<Link>>>,
    owners: Mutex<Owners>,
    /// Servers without words of their own for what we ask.
    plain: Mutex<HashSet<Server>>,
}

#[derive(Clone, Default)]
pub(super) enum Owners {
    /// To be asked.
    #[default]
    Unknown,
    One(Server),
    Slots(HashMap<Slot, Server>),
}

impl Owners {
    pub(super) fn of(&self, cell: &str) -> Option<Server> {
        match self {
            Self::Unknown => None,
            Self::One(server) => Some(server.clone()),
            Self::Slots(slots) => slots.get(&Slot::for_key(cell)).cloned(),
        }
    }

    pub(super) fn all(&self) -> Vec<Server> {
        match self {
            Self::Unknown => Vec::new(),
            Self::One(server) => vec![server.clone()],
            Self::Slots(slots) => {
                let all: HashSet<&Server> = slots.values().collect();
                all.into_iter().cloned().collect()
            }
        }
    }
}

impl Servers {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            ears: Arc::default(),
            links: Mutex::default(),
            owners: Mutex::default(),
            plain: Mutex::default(),
        }
    }

    fn is_plain(&self, server: &Server) -> bool {
        self.plain.lock().contains(server)
    }

    pub(super) async fn send(
        &self,
        server: &Server,
        purpose: Purpose,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, EngineError> {
        let sent = match self.link(server, purpose) {
            Ok(link) => link.send(commands).await,
            Err(why) => Err(why),
        };
        sent.map_err(|why| {
            self.forget();
            trouble::away(server, &why)
        })
    }

    fn link(&self, server: &Server, purpose: Purpose) -> RedisResult<Arc<Link>> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&(server.clone(), purpose)) {
            return Ok(Arc::clone(link));
        }
        let (protocol, config) = match purpose {
            Purpose::Calls | Purpose::Durable => (Some(ProtocolVersion::RESP2), None),
            Purpose::Notices => (Some(ProtocolVersion::RESP3), Some(self.ears.config())),
            Purpose::Sentinel => (None, None),
        };
        let client = self.place.client(server, protocol)?;
        let link = Arc::new(Link::new(client, config.unwrap_or_default()));
        links.insert((server.clone(), purpose), Arc::clone(&link));
        Ok(link)
    }

    /// What `read` finds among the owners, who are asked for first if they are unknown.
    pub(super) async fn owners<T>(&self, read: impl Fn(&Owners) -> T) -> Result<T, EngineError> {
        let known = match &*self.owners.lock() {
            Owners::Unknown => None,
            owners => Some(read(owners)),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.find().await?;
        let (known, mut unheard) = (found.all(), false);
        self.links.lock().retain(|(server, purpose), _| {
            let kept = *purpose == Purpose::Sentinel || known.contains(server);
            unheard |= !kept && *purpose == Purpose::Notices;
            kept
        });
        if unheard {
            self.ears.lost();
        }
        let read = read(&found);
        *self.owners.lock() = found;
        Ok(read)
    }

    /// Whoever answers first is believed: who is wrong is found out by the servers themselves (`MOVED`, `READONLY`).
    async fn find(&self) -> Result<Owners, EngineError> {
        let mut question = pipe();
        let purpose = match &self.place.kind {
            Kind::Alone => return Ok(Owners::One(self.place.servers[0].clone())),
            Kind::Sentinel { master } => {
                let question = question.cmd("SENTINEL");
                question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
                Purpose::Sentinel
            }
            Kind::Cluster => {
                question.cmd("CLUSTER").arg("SLOTS");
                Purpose::Calls
            }
        };
        let question = &question;
        let mut asked: HashSet<Server> = self.place.servers.iter().cloned().collect();
        // Those named may be gone; those found are connected already.
        asked.extend(self.connected(purpose));
        let asking = asked.into_iter().map(|server| {
            Box::pin(async move {
                let mut answers = self.send(&server, purpose, question).await?;
                match answers.pop().unwrap_or(Value::Nil) {
                    Value::ServerError(why) => Err(trouble::refused(&server, &why)),
                    Value::Nil => Err(trouble::unknown_master(&server)),
                    answer => match purpose {
                        Purpose::Sentinel => master(&answer).map(Owners::One),
                        _ => slots(&answer, &server).map(Owners::Slots),
                    }
                    .ok_or_else(|| trouble::odd(&answer)),
                }
            })
        });
        Ok(select_ok(asking).await?.0)
    }

    fn connected(&self, purpose: Purpose) -> Vec<Server> {
        let links = self.links.lock();
        let links = links.keys().filter(|(_, used)| *used == purpose);
        links.map(|(server, _)| server.clone()).collect()
    }

    /// The next call asks again.
    pub(super) fn forget(&self) {
        *self.owners.lock() = Owners::Unknown;
    }

    /// A server said no; it may be that it is no owner any more.
    pub(super) fn refused(&self, server: &Server, why: &ServerError) -> EngineError {
        if trouble::is_elsewhere(why) {
            self.forget();
        }
        trouble::refused(server, why)
    }

    /// One slot has another owner; the others may.
    pub(super) fn moved(&self, cell: &str, to: Server) {
        if let Owners::Slots(slots) = &mut *self.owners.lock() {
            slots.insert(Slot::for_key(cell), to);
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.place.kind, Kind::Cluster)
    }
}

/// Of a Sentinel's answer: host and port.
fn master(answer: &Value) -> Option<Server> {
    let [Value::BulkString(host), Value::BulkString(port)] = answer.as_sequence()? else {
        return None;
    };
    Some(Server {
        host: std::str::from_utf8(host).ok()?.into(),
        port: std::str::from_utf8(port).ok()?.parse().ok()?,
    })
}

/// Of `CLUSTER SLOTS`: first slot, last slot, master (host, port, …), replicas; `from` stands in for a host it does not say.
fn slots(answer: &Value, from: &Server) -> Option<HashMap<Slot, Server>> {
    let mut owners = HashMap::new();
    for range in answer.as_sequence()? {
        let [Value::Int(first), Value::Int(last), master, ..] = range.as_sequence()? else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_sequence()? else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() => String::from_utf8_lossy(host).into(),
            _ => Arc::clone(&from.host),
        };
        let port = u16::try_from(*port).ok()?;
        let master = Server { host, port };
        let slots = (*first..=*last).filter_map(|slot| Slot::new(u16::try_from(slot).ok()?));
        owners.extend(slots.map(|slot| (slot, master.clone())));
    }
    Some(owners)
}

impl Server {
    /// Of a redirection's details: `3999 127.0.0.1:6381`; `from` stands in for a host it does not say.
    pub(super) fn redirected(details: &str, from: &Self) -> Option<Self> {
        let (host, port) = details.rsplit(' ').next()?.rsplit_once(':')?;
        Some(Self {
            host: if host.is_empty() {
                Arc::clone(&from.host)
            } else {
                host.into()
            },
            port: port.parse().ok()?,
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.ears.lost(); // whoever keeps the subscriptions finds nothing to keep
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
