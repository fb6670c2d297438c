//! Connections: listening, TLS, limits, the end.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::{self, Gate};
use crate::coordinator::Coordinator;
use crate::unread::{Granted, Unread, Watched};

/// Connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1 << 16;
/// A request's head must come within this, and a TLS handshake.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// What is under way when the end is asked for has this long.
const FINISH_TIME: Duration = Duration::from_secs(10);

/// A certificate and its key, both PEM files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain, the server's own certificate first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The secret that workers and operators know.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// At least 16 characters, none of them a space.
    ///
    /// # Errors
    /// Anything else.
    pub fn new(text: &str) -> Result<Self, ServeError> {
        let text = text.trim();
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ServeError::Token);
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Where and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen at; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Needed for any address but loopback.
    pub token: Option<Token>,
    /// Speak TLS.
    pub certificate: Option<Certificate>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not loopback and there is no token.
    #[error(
        "{0} can be reached from other machines: that needs a token (--token-file FILE or POLITELY_TOKEN)"
    )]
    NoToken(SocketAddr),
    /// The token is no secret.
    #[error("a token is at least 16 characters long, without spaces")]
    Token,
    /// Somebody listens there already.
    #[error("{0} is in use, by another coordinator perhaps: choose another with --bind")]
    Taken(SocketAddr),
    /// Cannot listen.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, std::io::Error),
    /// The certificate or key is unusable.
    #[error("{}: {}", .0.display(), .1)]
    Certificate(PathBuf, String),
}

/// Listens already; [`Server::run`] answers.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    coordinator: Coordinator,
    gate: Arc<Gate>,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// What is wrong with the options, or the address is taken.
    pub async fn bind(coordinator: Coordinator, options: Options) -> Result<Self, ServeError> {
        let bind = options.bind;
        let access = match options.token {
            Some(Token(token)) => api::Access::Token(token.into_bytes().into()),
            None if bind.ip().is_loopback() => api::Access::Loopback,
            None => return Err(ServeError::NoToken(bind)),
        };
        let tls = options.certificate.as_ref().map(acceptor).transpose()?;
        let listening = TcpListener::bind(bind).await;
        let listener = listening.map_err(|why| match why.kind() {
            ErrorKind::AddrInUse => ServeError::Taken(bind),
            _ => ServeError::Bind(bind, why),
        })?;
        let address = listener
            .local_addr()
            .map_err(|why| ServeError::Bind(bind, why))?;
        crate::watch::install();
        Ok(Self {
            gate: Arc::new(api::routes(coordinator.clone(), access)),
            listener,
            address,
            tls,
            coordinator,
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `end`; then ends all waiting, finishes what is under way (ten seconds at most) and saves. Says whether
    /// all of it could be saved; the log says why not.
    pub async fn run(self, end: impl Future<Output = ()>) -> bool {
        let tending = tokio::spawn(self.coordinator.clone().tend());
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        tokio::pin!(end);
        loop {
            let stream = tokio::select! {
                accepted = accept(&self.listener) => accepted,
                () = &mut end => break,
            };
            let room = Arc::clone(&room);
            let Ok(place) = room.acquire_owned().await else {
                break;
            };
            let (gate, tls, watcher) =
                (Arc::clone(&self.gate), self.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let (stream, unread) = Watched::new(stream);
                let Some(tls) = tls else {
                    connection(stream, gate, watcher, unread).await;
                    return drop(place);
                };
                if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
                    connection(stream, gate, watcher, unread).await;
                }
                drop(place);
            });
        }
        drop(self.listener);
        self.coordinator.close();
        let _ = tokio::time::timeout(FINISH_TIME, graceful.shutdown()).await;
        tending.abort();
        self.coordinator.save().await
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(why) => {
                // Out of descriptors, say: those under way will give some back.
                tracing::warn!(%why, "accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    gate: Arc<Gate>,
    watcher: hyper_util::server::graceful::Watcher,
    unread: Arc<Unread>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(HEAD_TIME));
    let begun = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let (begun, unread) = (Arc::clone(&begun), Arc::clone(&unread));
        move |request: Request<Incoming>| {
            begun.store(true, Ordering::Relaxed);
            let (gate, unread) = (Arc::clone(&gate), Arc::clone(&unread));
            // Over HTTP/2 a caller gives up one of many calls, and resets its stream.
            let is_alone = request.version() < Version::HTTP_2;
            unread.read();
            async move {
                let mut response = gate.answer(request).await;
                let granted = response.extensions_mut().remove::<Granted>();
                if is_alone {
                    unread.answered(granted);
                }
                Ok::<_, Infallible>(response)
            }
        }
    });
    // hyper waits for a first byte as long as it takes.
    let silent = async {
        tokio::time::sleep(HEAD_TIME).await;
        if begun.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    // What went wrong on a connection is its caller's to know.
    tokio::select! {
        done = watcher.watch(connection) => unread.ended(done.is_err()),
        () = silent => {}
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

/// Why a PEM file could not be read.
fn unread(why: &pem::Error, wanted: &str) -> String {
    match why {
        pem::Error::NoItemsFound => format!("has no {wanted} in PEM form"),
        pem::Error::Io(why) => why.to_string(),
        why => format!("is no PEM file: {why}"),
    }
}
