//! A town of really limited hosts: nginx, express-rate-limit and Flask-Limiter as their users
//! configure them.
//!
//! A limiter tested against its own model of a server proves that two of our files agree. These
//! servers are other people's, with other people's rounding, and each keeps its own log of what
//! arrived: that log is the truth a test judges by, not what the client believes it did.
//!
//! Each host listens on a loopback address and a free port of its own, so whatever a limit attaches
//! to (host, address) keeps the hosts apart, and several towns can run at once. What the hosts are:
//! `tests/servers/README.md`.

mod express;
mod flask;
mod kind;
mod log;
mod nginx;
pub(crate) mod process;
#[allow(
    dead_code,
    unused_imports,
    reason = "the library's tests of engines use all of it"
)]
pub(crate) mod redis;
mod steady;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use process::Server;

pub(crate) use kind::Kind;
pub(crate) use log::Truth;
pub(crate) use process::repository;

/// Which sixteen hosts: both profiles crawl the same fifteen and one that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// With a host that blocks whoever is too fast: profile `crawler` stays below, by its ceiling.
    Crawler,
    /// With one more quota instead: profile `api` rides limits, which a blocking host answers with
    /// a ban.
    Api,
}

/// How many pages each host has.
const PAGES: u32 = 150;

/// One limited host and what is known about it.
#[derive(Clone, Debug)]
pub(crate) struct RealHost {
    pub(crate) name: &'static str,
    /// `http://127.x.y.z:port`, without a slash at the end. Pages are `/page/1` to `/page/150`, or
    /// to the number the town was started with.
    pub(crate) url_prefix: String,
    pub(crate) kind: Kind,
}

impl RealHost {
    pub(crate) fn page(&self, n: u32) -> String {
        format!("{}/page/{n}", self.url_prefix)
    }

    pub(crate) fn in_flight_cap(&self) -> Option<u32> {
        self.kind.in_flight_cap()
    }

    /// The least time in which anybody can get so many answers; count `robots.txt` in, the hosts
    /// do.
    pub(crate) fn best_time(&self, requests: u32) -> Duration {
        self.kind.best_time(requests)
    }
}

/// Where a server has to listen and what it has to write, handed to it at its start.
#[derive(Clone)]
struct Place {
    name: &'static str,
    address: SocketAddr,
    log: Option<PathBuf>,
}

/// The places as the servers read them: `{"name": {"address", "port", "log"}}`.
fn as_json(places: &[Place]) -> String {
    let entries = places.iter().map(|place| {
        let value = serde_json::json!({
            "address": place.address.ip().to_string(),
            "port": place.address.port(),
            "log": place.log,
        });
        (place.name.to_owned(), value)
    });
    serde_json::Value::Object(entries.collect()).to_string()
}

/// The running servers. Dropping it ends them; so does the end of the test process, however that
/// comes.
pub(crate) struct RealTown {
    pub(crate) hosts: Vec<RealHost>,
    barrier: SocketAddr,
    // Declared before the folder: the servers end before their logs go.
    servers: Vec<Server>,
    folder: tempfile::TempDir,
}

impl RealTown {
    /// Starts all servers and returns when every host accepts connections.
    pub(crate) fn start(set: Set) -> Self {
        Self::with_pages(set, PAGES)
    }

    /// The same with so many pages on the hosts that keep them as files; those that make them up
    /// have any number.
    pub(crate) fn with_pages(set: Set, pages: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder for the town");
        let place = |name: &'static str| Place {
            name,
            address: process::free_place(),
            log: Some(folder.path().join(format!("{name}.log"))),
        };
        let silent = |name| Place {
            log: None,
            ..place(name)
        };
        let places = |hosts: &[(&'static str, Kind)]| -> Vec<Place> {
            hosts.iter().map(|(name, _)| place(name)).collect()
        };

        let mut express_hosts = express::HOSTS.to_vec();
        express_hosts.push(match set {
            Set::Crawler => express::BLOCKS,
            Set::Api => express::QUOTA,
        });
        let kinds = [nginx::HOSTS, &express_hosts, flask::HOSTS].concat();

        let flask_places = places(flask::HOSTS);
        let mut express_places = places(&express_hosts);
        let upstream = silent("upstream");
        let barrier = silent("barrier");
        let mut nginx_places = places(nginx::HOSTS);

        let hosts = [&nginx_places, &express_places, &flask_places]
            .into_iter()
            .flatten()
            .zip(kinds)
            .map(|(place, (_, kind))| RealHost {
                name: place.name,
                url_prefix: format!("http://{}", place.address),
                kind,
            })
            .collect();

        let barrier_address = barrier.address;
        // nginx is told where its upstream is in the same way as where to listen.
        nginx_places.extend([barrier, upstream.clone()]);
        express_places.push(upstream);
        let mut servers = vec![
            flask::start(folder.path(), &flask_places),
            express::start(folder.path(), &express_places),
            nginx::start(folder.path(), &nginx_places, pages),
        ];
        let addresses = [&nginx_places, &express_places, &flask_places];
        process::wait_until_ready(
            &mut servers,
            addresses.into_iter().flatten().map(|place| place.address),
        );
        Self {
            hosts,
            barrier: barrier_address,
            servers,
            folder,
        }
    }

    pub(crate) fn host(&self, name: &str) -> &RealHost {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.unwrap_or_else(|| panic!("no host is called {name}"))
    }

    /// So many pages of each host, dealt out to `processes`; one a line, and the hosts take turns,
    /// as a crawler comes across them.
    pub(crate) fn lists(&self, processes: usize, pages: impl Fn(&RealHost) -> u32) -> Vec<String> {
        let mut lists = vec![String::new(); processes];
        for page in 1..=self.hosts.iter().map(&pages).max().unwrap_or(0) {
            let list = &mut lists[page as usize % processes];
            for host in self.hosts.iter().filter(|host| page <= pages(host)) {
                list.push_str(&host.page(page));
                list.push('\n');
            }
        }
        lists
    }

    /// What the servers logged so far, by host name. Every request that was answered before this
    /// call is in it.
    pub(crate) fn truth(&self) -> BTreeMap<&'static str, Truth> {
        self.wait_for_the_logs();
        let truth_of = |host: &RealHost| log::read(&self.log_of(host.name));
        self.hosts
            .iter()
            .map(|host| (host.name, truth_of(host)))
            .collect()
    }

    /// One line of JSON a request: `tests/servers/README.md`.
    pub(crate) fn log_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Express and Flask write before they answer. nginx writes just after, within the same turn of
    /// its only event loop: an answer to one more request comes from a later turn.
    fn wait_for_the_logs(&self) {
        let mut stream = TcpStream::connect(self.barrier).expect("nginx is there");
        stream
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("nginx takes a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("nginx answers");
        assert!(answer.starts_with(b"HTTP/1.1 204"), "the barrier answers");
    }

    /// The process ids of the servers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }
}
