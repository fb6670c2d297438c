//! Finds the owner of a key: the one server, the master that Sentinels name, or the owner of its
//! slot in a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::select_ok;
use redis::cluster_routing::Slot;
use redis::{
    ErrorKind, FromRedisValue, ParsingError, PushInfo, PushKind, RedisError, RedisResult,
    ServerErrorKind, Value, from_redis_value, from_redis_value_ref, pipe,
};

use crate::links::Purpose;
use crate::trouble::is_elsewhere;
use crate::url::Kind;
use crate::{Server, Servers, Trouble};

pub(crate) struct Owners {
    pub(crate) all: HashSet<Server>,
    /// The owner of each slot, in a cluster.
    slots: Option<HashMap<Slot, Server>>,
}

impl Owners {
    fn one(server: Server) -> Self {
        Self {
            all: HashSet::from([server]),
            slots: None,
        }
    }

    fn of(&self, key: &str) -> Option<&Server> {
        match &self.slots {
            None => self.all.iter().next(),
            Some(slots) => slots.get(&Slot::for_key(key)),
        }
    }
}

impl Servers {
    /// Returns the owners, and asks for them if they are unknown.
    pub(crate) async fn owners(&self) -> Result<Arc<Owners>, Trouble> {
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
            hear(PushInfo {
                kind: PushKind::Disconnection,
                data: vec![],
            });
        }
        *self.owners.lock() = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Asks for the owners and takes the first answer. If that is wrong, the servers themselves say
    /// so (`MOVED`, `READONLY`).
    async fn find(&self) -> Result<Owners, Trouble> {
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
        // The servers in the URL may be gone. The servers that were found later are connected
        // already.
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
                owners.map_err(|why| Trouble::Server(server, why))
            })
        });
        Ok(select_ok(asking).await?.0)
    }

    /// Forgets the owners, so that the next call asks again.
    pub(crate) fn forget(&self) {
        *self.owners.lock() = None;
    }

    pub(crate) fn owner(&self, owners: &Owners, key: &str) -> Result<Server, Trouble> {
        let owner = owners.of(key).cloned();
        owner.ok_or_else(|| {
            self.forget();
            Trouble::NoOwner
        })
    }

    /// Returns the error of a server. Forgets the owners if the server may own its keys no more.
    pub(crate) fn refused(&self, server: &Server, why: RedisError) -> Trouble {
        if is_elsewhere(&why) {
            self.forget();
        }
        Trouble::Server(server.clone(), why)
    }

    /// Returns the server that a cluster's redirection names, and whether it needs `ASKING` because
    /// the key is still being moved.
    pub(crate) fn redirected(&self, why: &RedisError, from: &Server) -> Option<(Server, bool)> {
        let Kind::Cluster = self.place.kind else {
            return None;
        };
        let (host, port) = why.redirect_node()?.0.rsplit_once(':')?;
        let to = server(host, port.parse().ok()?, from);
        let asking = why.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        if !asking {
            self.forget();
        }
        Some((to, asking))
    }
}

/// Returns a server. If `host` is empty, it is the host of `from`.
fn server(host: &str, port: u16, from: &Server) -> Server {
    let host = if host.is_empty() { from.host() } else { host };
    Server::new(host.trim_matches(['[', ']']), port)
}

/// Reads a Sentinel's answer: host and port.
fn master(answer: Value) -> RedisResult<Owners> {
    let unknown = "this Sentinel knows no master of that name";
    let master: Option<(String, u16)> = from_redis_value(answer)?;
    let (host, port) = master.ok_or((ErrorKind::MasterNameNotFoundBySentinel, unknown))?;
    Ok(Owners::one(Server::new(host, port)))
}

/// Reads the answer to `CLUSTER SLOTS`: first slot, last slot, master (host, port, …), replicas.
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

    #[test]
    fn a_redirection_says_where() {
        let servers = Servers::connect("redis+cluster://a").unwrap();
        let to = |said: &str| {
            let said = parse_redis_value(format!("-{said}\r\n").as_bytes()).unwrap();
            let why = said.extract_error().unwrap_err();
            let (to, asking) = servers.redirected(&why, &Server::new("from", 1))?;
            Some((to.host().to_owned(), to.port(), asking))
        };
        let is = |host: &str, port, asking| Some((host.to_owned(), port, asking));
        assert_eq!(
            to("MOVED 3999 127.0.0.1:6381"),
            is("127.0.0.1", 6381, false)
        );
        assert_eq!(to("ASK 3999 ::1:6381"), is("::1", 6381, true));
        assert_eq!(to("MOVED 3999 :6381"), is("from", 6381, false));
        assert_eq!(to("MOVED"), None);
        assert_eq!(to("ERR 3999 a:1"), None);
    }
}
