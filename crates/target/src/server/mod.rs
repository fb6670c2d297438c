//! A town of limited hosts over HTTP/1.1, in this process.
//!
//! Each host is a listener on a loopback address of its own. When a request's head has been read,
//! the host consults its model under one lock, and delays, queues, refuses, fails or blocks the
//! request accordingly. The clock is monotonic and starts with the target, so windows are aligned
//! to the target's start.

#![expect(
    clippy::disallowed_methods,
    reason = "a server is where time enters and where waiting is done"
)]

mod answer;
mod host;
mod visit;

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use politely_core::{Rng, Timestamp};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::host::Host;
use crate::judge::Report;
use crate::log::{Entry, LogFile, Record};
use crate::town::{Town, TownError};

/// The target's time: microseconds since its start.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Timestamp {
        Timestamp::ZERO + self.0.elapsed()
    }
}

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The town is not valid.
    #[error(transparent)]
    Town(#[from] TownError),
    /// A host's address is in use, or does not belong to this machine.
    #[error("cannot listen on {addr} for {host}: {source}")]
    Listen {
        /// The host's name.
        host: String,
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The log cannot be created.
    #[error("cannot write {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The table cannot be written.
    #[error("cannot write the report: {0}")]
    Output(#[from] io::Error),
}

/// The address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddr {
    /// Its name in the town.
    pub name: String,
    /// Its address and port.
    pub addr: SocketAddr,
    /// The number of its pages.
    pub pages: u32,
}

impl HostAddr {
    /// Returns a URL such as `http://127.0.0.1:1234`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the URLs of all its pages.
    pub fn page_urls(&self) -> impl Iterator<Item = String> {
        (0..self.pages).map(|page| format!("{}/page/{page}", self.url()))
    }
}

/// A running town. Dropping it stops the listeners and cuts its connections.
#[derive(Debug)]
pub struct Target {
    hosts: Vec<Arc<Host>>,
    addrs: Vec<HostAddr>,
    log: Option<Arc<LogFile>>,
    /// The tasks of the listeners, which own those of the connections. They are aborted on drop.
    _listeners: JoinSet<()>,
}

impl Target {
    /// Starts all hosts on the current runtime, and keeps only the judge's counters.
    pub async fn start(town: Town) -> Result<Self, TargetError> {
        Self::start_with(town, Record::Counters).await
    }

    /// Starts all hosts. When this returns, all of them listen.
    pub async fn start_with(town: Town, record: Record) -> Result<Self, TargetError> {
        town.validate()?;
        let log = match &record {
            Record::File(path) => {
                let file = LogFile::create(path);
                Some(Arc::new(file.map_err(|source| TargetError::Log {
                    path: path.clone(),
                    source,
                })?))
            }
            Record::Counters | Record::Memory => None,
        };
        let clock = Clock(Instant::now());
        let grace = Duration::from_millis(town.grace_ms);
        let mut seeds = Rng::new(town.seed);
        let (mut hosts, mut addrs) = (Vec::new(), Vec::new());
        let mut listeners = JoinSet::new();
        let places: Vec<SocketAddr> = (0..town.hosts.len())
            .map(|index| place(&town, index))
            .collect();
        for (spec, wanted) in town.hosts.into_iter().zip(places) {
            let failed = |source| TargetError::Listen {
                host: spec.name.clone(),
                addr: wanted,
                source,
            };
            let listener = TcpListener::bind(wanted).await.map_err(failed)?;
            let addr = listener.local_addr().map_err(failed)?;
            addrs.push(HostAddr {
                name: spec.name.clone(),
                addr,
                pages: spec.pages,
            });
            let seed = Rng::new(seeds.next_u64());
            let keep = record == Record::Memory;
            let host = Host::new(spec, addr, seed, clock, grace, log.clone(), keep)?;
            let host = Arc::new(host);
            hosts.push(Arc::clone(&host));
            listeners.spawn(listen(
                listener,
                host,
                |host: Arc<Host>, request| async move { host.answer(&request).await },
            ));
        }
        Ok(Self {
            hosts,
            addrs,
            log,
            _listeners: listeners,
        })
    }

    /// Returns the addresses of the hosts, in the town's order.
    pub fn hosts(&self) -> &[HostAddr] {
        &self.addrs
    }

    /// Returns the address of the host with this name.
    pub fn host(&self, name: &str) -> Option<&HostAddr> {
        self.addrs.iter().find(|host| host.name == name)
    }

    /// Returns what the hosts have seen so far. It computes each host's best time, which takes
    /// milliseconds.
    pub fn judge(&self) -> Report {
        if let Some(log) = &self.log {
            // A log that cannot be written affects only its readers; the counters are complete.
            let _ = log.flush();
        }
        Report {
            hosts: self.hosts.iter().map(|host| host.report()).collect(),
        }
    }

    /// Returns the requests of the host with this name so far, by departure. Empty without
    /// [`Record::Memory`].
    pub fn entries(&self, name: &str) -> Vec<Entry> {
        self.hosts
            .iter()
            .find(|host| host.name() == name)
            .map(|host| host.entries())
            .unwrap_or_default()
    }

    /// Stops listening, cuts the connections, and judges.
    pub fn shutdown(self) -> Report {
        self.judge()
    }
}

/// Returns the address of host number `index`.
fn place(town: &Town, index: usize) -> SocketAddr {
    // A valid town has at most 10,000 hosts.
    let index = index as u32;
    if town.bind.is_loopback() {
        let ip = Ipv4Addr::from_bits(town.bind.to_bits().wrapping_add(index));
        SocketAddr::from((ip, town.port))
    } else {
        let port = if town.port == 0 {
            0
        } else {
            town.port.saturating_add(index as u16)
        };
        SocketAddr::from((town.bind, port))
    }
}

/// The pause after accepting has failed because file handles have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections, and answers each of their requests.
pub(crate) async fn listen<H, A, E>(
    listener: TcpListener,
    host: Arc<H>,
    answer: impl Fn(Arc<H>, Request<Incoming>) -> A + Copy + Send + 'static,
) where
    H: Send + Sync + 'static,
    A: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    loop {
        // Removes finished connections, which would pile up otherwise.
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it, small answers wait for the client's delayed acknowledgement.
                let _ = stream.set_nodelay(true);
                let host = Arc::clone(&host);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&host), request));
                    // A client may break its connection; that is not an error of the server.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
