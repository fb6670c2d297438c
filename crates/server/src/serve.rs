//! Connections: listening, TLS, caps, shutdown.
//!
//! | file | its part |
//! | --- | --- |
//! | `serve/connection.rs` | one connection and its time-outs |
//! | `serve/progress.rs`, `serve/outbox.rs` | peers that do not read their answers |
//! | `serve/refusal.rs` | connections beyond a cap |

mod connection;
mod outbox;
mod progress;
mod refusal;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use parking_lot::RwLock;
use politely_otlp::Collector;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use self::connection::{HEAD_TIME, WRITE_TIME};
use self::progress::Progress;
use self::refusal::Refusals;
use crate::api::{self, Gate};
use crate::coordinator::Coordinator;
use crate::frontier::FrontierService;
use crate::often::Often;
use crate::tally::{self, Tally};
use crate::tokens::Tokens;

/// The time for unfinished calls to finish when the coordinator ends.
const FINISH_TIME: Duration = Duration::from_secs(10);
/// The send buffer of a socket, in bytes. A small buffer fills soon, and so shows early that the
/// peer does not read.
const SEND_BUFFER: u32 = 256 << 10;
/// The most connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// The longest pause after a connection could not be accepted.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Caps on the resources of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Connections of all peers. Default 65,536.
    pub connections: usize,
    /// Connections of one address, or of one /64 of IPv6. Default 4,096.
    pub peer_connections: usize,
    /// Items that wait in held-open calls, per client and per address. Default 65,536.
    pub waiting: usize,
    /// Keys that one client creates. Default 524,288.
    pub client_keys: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            connections: 1 << 16,
            peer_connections: 1 << 12,
            waiting: 1 << 16,
            client_keys: 1 << 19,
        }
    }
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain, with the server's own certificate first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Port 0 selects a free port.
    pub bind: SocketAddr,
    /// The accepted tokens. They are required unless the address is loopback.
    pub token: Option<Tokens>,
    /// The certificate for TLS. Without it the server speaks plain HTTP.
    pub certificate: Option<Certificate>,
    /// The gRPC service for workers that speak `URLFrontier`'s protocol.
    pub grpc: Option<Grpc>,
    /// The frontier. Without it the calls of `/api/v1/frontier` are answered 404.
    pub frontier: Option<FrontierService>,
    /// The commit of the program, for `politely_build_info` in `/metrics`.
    pub commit: &'static str,
    /// The OpenTelemetry collector that gets spans and metrics.
    pub collector: Option<Collector>,
}

/// Sets the level of a part of the program's log: the part, and one of `trace`, `debug`, `info`,
/// `warn`, `error`. The error says why it is not set.
pub type SetLogLevel = fn(&str, &str) -> Result<(), String>;

/// The gRPC service for workers that speak `URLFrontier`'s protocol.
#[derive(Clone, Copy, Debug)]
pub struct Grpc {
    /// A further address to listen on.
    pub bind: SocketAddr,
    /// Carries out the call `SetLogLevel`.
    pub set_log_level: SetLogLevel,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not loopback and there is no token.
    #[error(
        "{0} can be reached from other machines: that needs a token (--token-file FILE or POLITELY_TOKEN)"
    )]
    NoToken(SocketAddr),
    /// The token is not 16 to 512 visible ASCII characters.
    #[error("a token is at least 16 characters long, without spaces")]
    Token,
    /// A line of a token file is wrong.
    #[error("line {0}: {1}")]
    Tokens(usize, String),
    /// The address is in use.
    #[error("{0} is in use, by another coordinator perhaps: choose another with --bind")]
    Taken(SocketAddr),
    /// The server cannot listen on the address.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, std::io::Error),
    /// The certificate or key is unusable.
    #[error("{}: {}", .0.display(), .1)]
    Certificate(PathBuf, String),
}

/// A server that listens already. [`Server::run`] answers calls.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    grpc: Option<(TcpListener, SocketAddr)>,
    tls: Option<TlsAcceptor>,
    coordinator: Coordinator,
    frontier: Option<FrontierService>,
    gate: Arc<Gate>,
    caps: Caps,
}

/// A handle that replaces the tokens of a running server.
#[derive(Clone)]
pub struct Reload(Arc<Gate>);

impl Reload {
    /// Replaces the accepted tokens. Streams of events end, so that their readers reconnect.
    /// Returns `false` and does nothing if the server was started without tokens.
    pub fn replace(&self, tokens: Tokens) -> bool {
        self.0.replace(tokens)
    }
}

impl Server {
    /// Listens on the address of `options`.
    ///
    /// # Errors
    /// An option is invalid, or the address cannot be used.
    #[expect(
        clippy::unused_async,
        reason = "callers of this public function await it"
    )]
    pub async fn bind(coordinator: Coordinator, options: Options) -> Result<Self, ServeError> {
        let bind = options.bind;
        let access = if let Some(tokens) = options.token {
            api::Access::Tokens(RwLock::new(Arc::new(tokens)))
        } else {
            let grpc = options.grpc.map(|grpc| grpc.bind);
            let open = [Some(bind), grpc].into_iter().flatten();
            let mut open = open.filter(|address| !address.ip().is_loopback());
            match open.next() {
                None => api::Access::Loopback,
                Some(address) => return Err(ServeError::NoToken(address)),
            }
        };
        let tls = options.certificate.as_ref().map(acceptor).transpose()?;
        let (listener, address) = listen(bind)?;
        let grpc = options.grpc.map(|grpc| listen(grpc.bind)).transpose()?;
        crate::watch::install(options.collector.as_ref());
        let caps = Caps::default();
        coordinator.set_client_keys(caps.client_keys);
        let frontier = options.frontier;
        let gate = api::routes(
            coordinator.clone(),
            access,
            frontier.clone(),
            caps.waiting,
            options.grpc.map(|grpc| grpc.set_log_level),
            options.commit,
            options.collector.clone(),
        );
        if let Some(collector) = &options.collector {
            let (coordinator, frontier) = (coordinator.clone(), frontier.clone());
            crate::watch::export(collector, coordinator, frontier, options.commit);
        }
        Ok(Self {
            gate: Arc::new(gate),
            listener,
            address,
            grpc,
            tls,
            coordinator,
            frontier,
            caps,
        })
    }

    /// Returns the address on which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the further address for `URLFrontier`'s protocol, if there is one.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(|(_, address)| *address)
    }

    /// Sets the caps.
    #[must_use]
    pub fn caps(mut self, caps: Caps) -> Self {
        self.gate.set_waiting(caps.waiting);
        self.coordinator.set_client_keys(caps.client_keys);
        self.caps = caps;
        self
    }

    /// Returns a handle that replaces the tokens while the server runs.
    pub fn reload(&self) -> Reload {
        Reload(Arc::clone(&self.gate))
    }

    /// Returns a future that completes after `time` without a call, or up to a quarter later.
    pub fn idle(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let gate = Arc::clone(&self.gate);
        async move { gate.idle(time).await }
    }

    /// Answers calls until `end` completes. Then it ends all waiting, gives unfinished calls ten
    /// seconds to finish, and saves.
    ///
    /// Returns whether everything was saved. The log says why not.
    pub async fn run(self, end: impl Future<Output = ()>) -> bool {
        let tending = tokio::spawn(self.coordinator.clone().tend());
        let frontier_tending =
            (self.frontier.clone()).map(|frontier| tokio::spawn(frontier.tend()));
        let graceful = GracefulShutdown::new();
        let (peers, all) = (
            Tally::new(self.caps.peer_connections),
            Tally::new(self.caps.connections),
        );
        let refusals = Refusals::new();
        let (mut accepting, mut accepting_grpc) = (Accepting::default(), Accepting::default());
        tokio::pin!(end);
        loop {
            let (stream, peer) = tokio::select! {
                // `end` is polled first, so that many connections cannot delay it.
                biased;
                () = &mut end => break,
                accepted = accepting.next(&self.listener) => accepted,
                accepted = accepting_grpc.next_if_any(self.grpc.as_ref()) => accepted,
            };
            let Some(place) = all.take((), 1) else {
                let detail = format!("all {} connections are in use", all.most());
                refusals.refuse(stream, detail, self.tls.is_some());
                continue;
            };
            let Some(share) = peers.take(tally::peer(peer), 1) else {
                let detail = format!(
                    "{peer} has {} connections, the most of one address",
                    peers.most()
                );
                refusals.refuse(stream, detail, self.tls.is_some());
                continue;
            };
            let (gate, tls, watcher) =
                (Arc::clone(&self.gate), self.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let _places = (place, share);
                let stream = Progress::new(stream, WRITE_TIME);
                let Some(tls) = tls else {
                    return connection::serve(stream, peer, gate, watcher).await;
                };
                if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
                    connection::serve(stream, peer, gate, watcher).await;
                }
            });
        }
        drop((self.listener, self.grpc));
        self.coordinator.close();
        let _ = tokio::time::timeout(FINISH_TIME, graceful.shutdown()).await;
        self.coordinator.leave_log().await;
        tending.abort();
        let is_saved = match (&self.frontier, frontier_tending) {
            (Some(frontier), Some(tending)) => {
                tending.abort();
                frontier.save().await
            }
            _ => true,
        };
        self.coordinator.save().await && is_saved
    }
}

/// Listens on an address, and returns the address with its port.
fn listen(bind: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |why: std::io::Error| match why.kind() {
        ErrorKind::AddrInUse => ServeError::Taken(bind),
        _ => ServeError::Bind(bind, why),
    };
    let listener = try_listen(bind).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn try_listen(bind: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if bind.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit this size.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(bind)?;
    socket.listen(BACKLOG)
}

/// Accepts connections, and pauses while the system has no file descriptors.
#[derive(Default)]
struct Accepting {
    pause: Duration,
    log: Often,
}

impl Accepting {
    /// Returns the next connection of a listener, if there is one. Cancel safe.
    async fn next_if_any(
        &mut self,
        listener: Option<&(TcpListener, SocketAddr)>,
    ) -> (TcpStream, IpAddr) {
        match listener {
            Some((listener, _)) => self.next(listener).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the next connection and its peer. Cancel safe.
    async fn next(&mut self, listener: &TcpListener) -> (TcpStream, IpAddr) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.pause = Duration::ZERO;
                    let _ = stream.set_nodelay(true);
                    return (stream, peer.ip());
                }
                // The peer has already closed the connection, which is no error of this process.
                Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
                Err(why) => {
                    if let Some(count) = self.log.note(Instant::now()) {
                        tracing::warn!(
                            "cannot accept connections: {why} ({count} times); \
                             raise the limit of open files (ulimit -n)"
                        );
                    }
                    self.pause = (self.pause * 2).clamp(Duration::from_millis(10), PAUSE_MAX);
                    tokio::time::sleep(self.pause).await;
                }
            }
        }
    }
}

fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor, ServeError> {
    let wrong = |path: &PathBuf, why: String| ServeError::Certificate(path.clone(), why);
    let chain = CertificateDer::pem_file_iter(&certificate.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| wrong(&certificate.chain, unread(&why, "certificate")))?;
    if chain.is_empty() {
        let why = unread(&pem::Error::NoItemsFound, "certificate");
        return Err(wrong(&certificate.chain, why));
    }
    let key = PrivateKeyDer::from_pem_file(&certificate.key)
        .map_err(|why| wrong(&certificate.key, unread(&why, "private key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| wrong(&certificate.chain, why.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|why| wrong(&certificate.chain, why.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Describes why a PEM file could not be read.
fn unread(why: &pem::Error, wanted: &str) -> String {
    match why {
        pem::Error::NoItemsFound => format!("has no {wanted} in PEM form"),
        pem::Error::Io(why) => why.to_string(),
        why => format!("is no PEM file: {why}"),
    }
}
