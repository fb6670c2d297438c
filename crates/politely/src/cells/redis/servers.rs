//! Which server owns a cell.
//!
//! redis-rs has clients for Sentinel and for clusters. Its cluster client sends a pipeline to one server only if all
//! keys hash alike, and its Sentinel client asks Sentinels in order, so that one that hangs costs the whole second of a call:
//! hence our own, on its connections, slots and errors.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::cluster_routing::Slot;
use redis::{Pipeline, ProtocolVersion, RedisResult, ServerError, Value, cmd, pipe};

use super::super::EngineError;
use super::link::{Link, Purpose};
use super::notices::Ears;
use super::place::{Kind, Place, Server};
use super::trouble;

pub(super) struct Servers {
    place: Place,
    pub(super) ears: Arc<Ears>,
    links: Mutex<HashMap<(Server, Purpose), Arc<Link>>>,
    owners: Mutex<Owners>,
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
        let mut all: Vec<Server> = Vec::new();
        let owners: &mut dyn Iterator<Item = &Server> = match self {
            Self::Unknown => &mut std::iter::empty(),
            Self::One(server) => &mut std::iter::once(server),
            Self::Slots(slots) => &mut slots.values(),
        };
        for owner in owners {
            if !all.contains(owner) {
                all.push(owner.clone());
            }
        }
        all
    }
}

impl Servers {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            ears: Arc::default(),
            links: Mutex::default(),
            owners: Mutex::default(),
        }
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
        let unknown = matches!(*self.owners.lock(), Owners::Unknown);
        if unknown {
            let found = self.find().await?;
            let known = found.all();
            self.links.lock().retain(|(server, purpose), _| {
                *purpose == Purpose::Sentinel || known.contains(server)
            });
            *self.owners.lock() = found;
        }
        Ok(read(&self.owners.lock()))
    }

    /// Whoever answers first is believed: who is wrong is found out by the servers themselves (`MOVED`, `READONLY`).
    async fn find(&self) -> Result<Owners, EngineError> {
        let (purpose, question) = match &self.place.kind {
            Kind::Alone => return Ok(Owners::One(self.place.servers[0].clone())),
            Kind::Sentinel { master } => {
                let mut question = cmd("SENTINEL");
                question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
                (Purpose::Sentinel, question)
            }
            Kind::Cluster => {
                let mut question = cmd("CLUSTER");
                question.arg("SLOTS");
                (Purpose::Calls, question)
            }
        };
        let mut question_alone = pipe();
        question_alone.add_command(question);
        let question = &question_alone;
        let mut asked = self.place.servers.clone();
        // Those named may be gone; those found are connected already.
        for (server, used) in self.links.lock().keys() {
            if *used == purpose && !asked.contains(server) {
                asked.push(server.clone());
            }
        }
        let asking = asked.into_iter().map(|server| {
            Box::pin(async move {
                let link = self.link(&server, purpose);
                let answers = match link {
                    Ok(link) => link.send(question).await,
                    Err(why) => Err(why),
                };
                let mut answers = answers.map_err(|why| trouble::away(&server, &why))?;
                match answers.pop() {
                    Some(Value::ServerError(why)) => Err(trouble::refused(&server, &why)),
                    Some(Value::Nil) => Err(trouble::unknown_master(&server)),
                    Some(answer) if purpose == Purpose::Sentinel => master(&answer)
                        .map(Owners::One)
                        .ok_or_else(|| trouble::odd(&answer)),
                    Some(answer) => Ok(slots(&answer, &server)),
                    None => Err(trouble::odd(&Value::Nil)),
                }
            })
        });
        Ok(select_ok(asking).await?.0)
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
fn slots(answer: &Value, from: &Server) -> Owners {
    let mut owners = HashMap::new();
    for range in answer.as_sequence().unwrap_or_default() {
        let Some([Value::Int(first), Value::Int(last), master, ..]) = range.as_sequence() else {
            continue;
        };
        let Some([host, Value::Int(port), ..]) = master.as_sequence() else {
            continue;
        };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() => String::from_utf8_lossy(host).into(),
            _ => Arc::clone(&from.host),
        };
        let port = u16::try_from(*port).unwrap_or(from.port);
        let master = Server { host, port };
        let slots = (*first..=*last).filter_map(|slot| Slot::new(u16::try_from(slot).ok()?));
        owners.extend(slots.map(|slot| (slot, master.clone())));
    }
    Owners::Slots(owners)
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
