//! Who owns a cell: the one server there is, the master that Sentinels name, or whoever has its slot in a cluster.
//!
//! redis-rs has clients for Sentinels and for clusters. Its cluster client takes pipelines of one slot only, so that of a thousand
//! changes each would be a command of its own, with a `WAIT` of its own to wait for; sent apart, a connection made anew between a change
//! and its `WAIT` would acknowledge what was never sent. Its Sentinel client takes Sentinels' answers in order, so that one that hangs
//! costs a call its second. Hence our own, on its connections, slots, parsers and errors.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::select_ok;
use redis::cluster_routing::Slot;
use redis::{
    ErrorKind, FromRedisValue, ParsingError, RedisError, RedisResult, Value, from_redis_value,
    from_redis_value_ref, pipe,
};

use super::super::{EngineError, Notice};
use super::Redis;
use super::links::{Purpose, Server};
use super::trouble::{complaint, is_elsewhere};
use super::url::Kind;

pub(super) struct Owners {
    pub(super) all: HashSet<Server>,
    /// Of a cluster: whose each slot is.
    slots: Option<HashMap<Slot, Server>>,
}

impl Owners {
    fn one(server: Server) -> Self {
        Self {
            all: HashSet::from([server]),
            slots: None,
        }
    }

    fn of(&self, cell: &str) -> Option<&Server> {
        match &self.slots {
            None => self.all.iter().next(),
            Some(slots) => slots.get(&Slot::for_key(cell)),
        }
    }
}

impl Redis {
    /// Who owns what; asked for if it is unknown.
    pub(super) async fn owners(&self) -> Result<Arc<Owners>, EngineError> {
        if let Some(known) = self.owners.lock().clone() {
            return Ok(known);
        }
        let found = Arc::new(self.find().await?);
        let mut unheard = false;
        self.links.lock().retain(|(server, purpose), _| {
            let kept = *purpose == Purpose::Sentinel || found.all.contains(server);
            unheard |= !kept && *purpose == Purpose::Notices;
            kept
        });
        if unheard && let Some(hear) = self.hear.get() {
            hear(Notice::Unheard { cell: None });
        }
        self.plain.store(false, Ordering::Relaxed);
        *self.owners.lock() = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Whoever answers first is believed: who is wrong is found out by the servers themselves (`MOVED`, `READONLY`).
    async fn find(&self) -> Result<Owners, EngineError> {
        let mut question = pipe();
        let purpose = match &self.place.kind {
            Kind::Alone => return Ok(Owners::one(self.place.servers[0].clone())),
            Kind::Sentinel { master } => {
                let words = question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
                words.arg(master);
                Purpose::Sentinel
            }
            Kind::Cluster => {
                question.cmd("CLUSTER").arg("SLOTS");
                Purpose::Calls
            }
        };
        let mut asked: HashSet<Server> = self.place.servers.iter().cloned().collect();
        // Those named may be gone; those found are connected already.
        for (server, used) in self.links.lock().keys() {
            if *used == purpose {
                asked.insert(server.clone());
            }
        }
        let question = &question;
        let asking = asked.into_iter().map(|server| {
            Box::pin(async move {
                let mut answers = self.send(&server, purpose, question).await?;
                let answer = answers.pop().unwrap_or(Value::Nil);
                let owners = answer.extract_error().and_then(|answer| match purpose {
                    Purpose::Sentinel => master(answer),
                    _ => slots(answer, &server),
                });
                owners.map_err(|why| complaint(&server, &why))
            })
        });
        Ok(select_ok(asking).await?.0)
    }

    /// The next call asks again.
    pub(super) fn forget(&self) {
        *self.owners.lock() = None;
    }

    pub(super) fn owner(
        &self,
        owners: &Result<Arc<Owners>, EngineError>,
        cell: &str,
    ) -> Result<Server, EngineError> {
        let owner = owners.as_ref().map_err(Clone::clone)?.of(cell);
        owner.cloned().ok_or_else(|| {
            self.forget();
            EngineError("no server owns the cell: the cluster is incomplete".to_owned())
        })
    }

    /// A server said no; it may be that it is no owner any more.
    pub(super) fn refused(&self, server: &Server, why: &RedisError) -> EngineError {
        if is_elsewhere(why) {
            self.forget();
        }
        complaint(server, why)
    }

    /// Where a cluster's server says that the cell is now, or will be.
    pub(super) fn redirected(&self, why: &RedisError, from: &Server) -> Option<Server> {
        let Kind::Cluster = self.place.kind else {
            return None;
        };
        let (host, port) = why.redirect_node()?.0.rsplit_once(':')?;
        Some(server(host, port.parse().ok()?, from))
    }
}

/// `from` stands in for a host it does not say.
fn server(host: &str, port: u16, from: &Server) -> Server {
    let host = if host.is_empty() { from.host() } else { host };
    Server::new(host.trim_matches(['[', ']']), port)
}

/// Of a Sentinel's answer: host and port.
fn master(answer: Value) -> RedisResult<Owners> {
    let unknown = "this Sentinel knows no master of that name";
    let master: Option<(String, u16)> = from_redis_value(answer)?;
    let (host, port) = master.ok_or((ErrorKind::MasterNameNotFoundBySentinel, unknown))?;
    Ok(Owners::one(Server::new(host, port)))
}

/// Of `CLUSTER SLOTS`: first slot, last slot, master (host, port, …), replicas.
fn slots(answer: Value, from: &Server) -> RedisResult<Owners> {
    fn part<T: FromRedisValue>(of: &[Value], index: usize) -> Result<T, ParsingError> {
        from_redis_value_ref(of.get(index).unwrap_or(&Value::Nil))
    }
    let (mut all, mut owners) = (HashSet::new(), HashMap::new());
    for range in from_redis_value::<Vec<Vec<Value>>>(answer)? {
        let (first, last, master): (u16, u16, Vec<Value>) =
            (part(&range, 0)?, part(&range, 1)?, part(&range, 2)?);
        let host: Option<String> = part(&master, 0)?;
        let master = server(&host.unwrap_or_default(), part(&master, 1)?, from);
        let slots = (first..=last).filter_map(Slot::new);
        owners.extend(slots.map(|slot| (slot, master.clone())));
        all.insert(master);
    }
    Ok(Owners {
        all,
        slots: Some(owners),
    })
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    #[test]
    fn a_cluster_says_who_owns_what() {
        let from = Server::new("seed", 1);
        let said = b"*3\r\n\
            *4\r\n:0\r\n:9\r\n*4\r\n$2\r\nm1\r\n:7000\r\n$2\r\nid\r\n*0\r\n*2\r\n$2\r\nr1\r\n:7003\r\n\
            *3\r\n:10\r\n:10\r\n*2\r\n$-1\r\n:7001\r\n\
            *3\r\n:16383\r\n:16383\r\n*2\r\n$0\r\n\r\n:7002\r\n";
        let owners = slots(parse_redis_value(said).unwrap(), &from).unwrap();
        let slots = owners.slots.expect("a cluster has slots");
        let of = |slot| {
            slots
                .get(&Slot::new(slot).unwrap())
                .map(ToString::to_string)
        };
        assert_eq!(of(0), of(9));
        assert_eq!(of(9).as_deref(), Some("m1:7000"));
        assert_eq!(of(10).as_deref(), Some("seed:7001"));
        assert_eq!(of(16_383).as_deref(), Some("seed:7002"));
        assert_eq!((of(11), owners.all.len()), (None, 3));
        for odd in ["*1\r\n:1\r\n", "*1\r\n*1\r\n:1\r\n", ":1\r\n"] {
            let odd = parse_redis_value(odd.as_bytes()).unwrap();
            assert!(super::slots(odd, &from).is_err());
        }
    }

    /// Another server may be a newer one.
    #[tokio::test]
    async fn whoever_is_found_anew_is_asked_in_its_own_words_again() {
        let redis = Redis::connect("redis://a").unwrap();
        redis.owners().await.unwrap();
        redis.plain.store(true, Ordering::Relaxed);
        redis.owners().await.unwrap();
        assert!(redis.plain.load(Ordering::Relaxed), "it is the same");
        redis.forget();
        redis.owners().await.unwrap();
        assert!(!redis.plain.load(Ordering::Relaxed));
    }

    #[test]
    fn a_redirection_says_where() {
        let redis = Redis::connect("redis+cluster://a").unwrap();
        let to = |said: &str| {
            let said = parse_redis_value(format!("-{said}\r\n").as_bytes()).unwrap();
            let why = said.extract_error().unwrap_err();
            let to = redis.redirected(&why, &Server::new("from", 1))?;
            Some((to.host().to_owned(), to.port()))
        };
        let is = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(to("MOVED 3999 127.0.0.1:6381"), is("127.0.0.1", 6381));
        assert_eq!(to("ASK 3999 ::1:6381"), is("::1", 6381));
        assert_eq!(to("MOVED 3999 :6381"), is("from", 6381));
        assert_eq!(to("MOVED"), None);
        assert_eq!(to("ERR 3999 a:1"), None);
    }
}
