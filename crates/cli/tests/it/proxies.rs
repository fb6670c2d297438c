//! `politely fetch` through HTTP and SOCKS5 proxies, with and without TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::coordinator_tls::certify;
use crate::h2_trouble::{Does, HTTP_1_1_REQUIRED, Server};
use crate::run::{fast, run};

const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];
/// The login of the proxy, percent-encoded for its URL, plain, and as Basic authentication.
const LOGIN: [&str; 3] = ["us%40er:pa%2Fss", "us@er:pa/ss", "dXNAZXI6cGEvc3M="];
/// The login of the pages, plain and as Basic authentication.
const PAGE_LOGIN: [&str; 2] = ["me:here", "bWU6aGVyZQ=="];

/// The answer of a proxy to CONNECT for a host that its rules deny.
const DENIAL: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";

/// A host that answers each GET with a page, and a proxy that opens tunnels after CONNECT and
/// SOCKS5. All tunnels lead to this machine.
struct Peer {
    address: SocketAddr,
    /// The head of each HTTP request, in lower case, and a line for each SOCKS5 request.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    /// Starts a peer with TLS if `certificates` is a folder of [`certify`].
    fn start(certificates: Option<&Path>) -> Self {
        let tls = certificates.map(acceptor);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let (tls, log) = (tls.clone(), Arc::clone(&log));
                    tokio::spawn(async move {
                        match tls {
                            None => serve(stream, &log).await,
                            Some(tls) => serve(tls.accept(stream).await?, &log).await,
                        }
                    });
                }
            });
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(tls(folder)))
}

/// Returns the TLS of a server with the certificate in `folder`.
pub(crate) fn tls(folder: &Path) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(folder.join("cert.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    loop {
        let first = stream.read_u8().await?;
        if first == 5 {
            return serve_socks5(stream, log).await;
        }
        let mut head = vec![first];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        log.lock().unwrap().push(head.clone());
        if let Some(tunnel) = head.strip_prefix("connect ") {
            let authority = tunnel.split(' ').next().unwrap();
            if authority.starts_with("denied") {
                stream.write_all(DENIAL).await?;
                continue;
            }
            let port = authority.rsplit(':').next().unwrap().parse().unwrap();
            // Some proxies fold lines, or write a blank before the colon.
            let answer = b"HTTP/1.1 200 Connection established\r\nVia: a\r\n b\r\nNote : c\r\n\r\n";
            return relay(stream, answer, port).await;
        }
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na page";
        stream.write_all(page).await?;
    }
}

/// Continues after the version number of the first message of SOCKS5 (RFC 1928, RFC 1929).
async fn serve_socks5<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let methods = string(&mut stream).await?;
    let mut login = String::new();
    if methods == "\x02" {
        stream.write_all(&[5, 2]).await?;
        stream.read_u8().await?;
        login = string(&mut stream).await? + ":" + &string(&mut stream).await?;
        stream.write_all(&[1, 0]).await?;
    } else {
        stream.write_all(&[5, 0]).await?;
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let host = match head {
        [5, 1, 0, 1] => std::net::Ipv4Addr::from(stream.read_u32().await?).to_string(),
        [5, 1, 0, 3] => string(&mut stream).await?,
        [5, 1, 0, 4] => std::net::Ipv6Addr::from(stream.read_u128().await?).to_string(),
        _ => panic!("{head:?}"),
    };
    let port = stream.read_u16().await?;
    log.lock().unwrap().push(format!("{login} {host} {port}"));
    relay(stream, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], port).await
}

/// Reads a string after its length.
async fn string<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<String> {
    let mut text = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}

async fn relay<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &[u8],
    port: u16,
) -> std::io::Result<()> {
    let mut to = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(answer).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut to).await?;
    Ok(())
}

/// Returns a command that trusts the authority in `folder`, and fetches one page at a time.
fn fetch(folder: &Path, proxy: &str) -> Command {
    let mut command = fast();
    command.env("SSL_CERT_FILE", folder.join("ca.pem"));
    command.env_remove("SSL_CERT_DIR");
    command.args(["--in-flight", "1", "--retries", "0", "--proxy", proxy]);
    command
}

#[test]
fn each_kind_of_proxy_gets_its_login_and_hosts_get_only_their_own() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let [encoded, login, basic] = LOGIN;
    let [page_login, page_basic] = PAGE_LOGIN;
    let own = format!("authorization: basic {}\r\n", page_basic.to_lowercase());
    let of_proxy = format!("\r\nproxy-authorization: basic {}", basic.to_lowercase());
    for scheme in SCHEMES {
        let proxy = Peer::start((scheme == "https").then_some(folder.path()));
        let (plain, secure) = (Peer::start(None), Peer::start(Some(folder.path())));
        let url = format!("{scheme}://{encoded}@{}", proxy.address);
        let urls = [1, 2].map(|n| {
            let host =
                |scheme, peer: &Peer| format!("{scheme}://{page_login}@{}/{n}", peer.address);
            [host("http", &plain), host("https", &secure)]
        });
        let said = run(fetch(folder.path(), &url).args(urls.as_flattened()));
        assert_eq!(said.code, 0, "{scheme}: {:?}", said.errors());
        let (mut at_plain, at_secure) = (plain.seen(), secure.seen());
        let of_plain = format!("http://{}/", plain.address);
        let (forwarded, mut tunnels): (Vec<_>, Vec<_>) =
            (proxy.seen().into_iter()).partition(|seen| seen.contains(&of_plain));
        if scheme.starts_with("http") {
            assert!(at_plain.is_empty(), "{scheme}: {at_plain:?}");
            for head in &forwarded {
                assert!(head.contains(&of_proxy) && head.contains(&own), "{head}");
            }
            at_plain = forwarded;
            let tunnel = tunnels.pop().unwrap();
            let first = format!("connect {} http/1.1\r\n", secure.address);
            assert!(tunnel.starts_with(&first), "{tunnel}");
            assert!(tunnel.contains(&of_proxy), "{tunnel}");
            assert!(!tunnel.contains(&format!("\r\n{own}")), "{tunnel}");
        } else {
            for peer in [&plain, &secure] {
                let (host, port) = (peer.address.ip(), peer.address.port());
                let tunnel = format!("{login} {host} {port}");
                let place = tunnels.iter().position(|seen| *seen == tunnel);
                tunnels.remove(place.expect("a tunnel to each host"));
            }
            let leaks = at_plain.iter().any(|head| head.contains("proxy-"));
            assert!(!leaks, "{at_plain:?}");
        }
        assert!(tunnels.is_empty(), "{scheme}: {tunnels:?}");
        assert_eq!((at_plain.len(), at_secure.len()), (2, 2), "{scheme}");
        for head in at_secure {
            assert!(head.contains(&own) && !head.contains("proxy-"), "{head}");
        }
    }
}

#[test]
fn a_tunnel_carries_http_2_and_only_http_1_to_an_origin_that_requires_it() {
    for scheme in SCHEMES {
        let server = Server::start(|_| Does::Resets(HTTP_1_1_REQUIRED));
        let folder = server.folder.path();
        let proxy = Peer::start((scheme == "https").then_some(folder));
        let url = format!("{scheme}://{}", proxy.address);
        let urls = (0..3).map(|n| format!("{}/{n}", server.url));
        let said = run(fetch(folder, &url).args(urls));
        assert_eq!(said.code, 0, "{scheme}: {:?}", said.errors());
        assert_eq!(server.asked(), [1, 3], "{scheme}");
    }
}

#[test]
fn socks5_resolves_names_here_and_socks5h_at_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let host = Peer::start(None);
    for (scheme, is_name) in [("socks5", false), ("socks5h", true)] {
        let proxy = Peer::start(None);
        let url = format!("{scheme}://{}", proxy.address);
        let page = format!("http://localhost:{}/", host.address.port());
        let said = run(fetch(folder.path(), &url).arg(page));
        assert_eq!(said.code, 0, "{scheme}: {:?}", said.errors());
        let [seen] = &proxy.seen()[..] else {
            panic!("{scheme}: {:?}", proxy.seen())
        };
        assert_eq!(seen.contains(" localhost "), is_name, "{scheme}: {seen}");
    }
}

/// Regression: the proxy was set aside for all hosts.
#[test]
fn a_proxy_that_denies_one_host_serves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (proxy, host) = (Peer::start(None), Peer::start(Some(folder.path())));
    let url = format!("http://{}", proxy.address);
    let page = |n| format!("https://{}/{n}", host.address);
    let denied = |n| format!("https://denied.example/{n}");
    let urls = [page(0), denied(0), page(1), denied(1), page(2), page(3)];
    let mut command = fetch(folder.path(), &url);
    let said = run(command.args(["--concurrency", "1"]).args(urls));
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(!said.err.contains("set aside"), "{}", said.err);
    for row in said.rows() {
        let is_denied = row["url"].as_str().unwrap().contains("denied");
        let error = row["error"].as_str().unwrap_or_default();
        let is_told = error.contains("the proxy refused: 403 Forbidden");
        assert_eq!(is_told, is_denied, "{row}");
    }
}

#[test]
fn a_failure_of_a_proxy_names_the_proxy_without_its_login() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let secure = Peer::start(Some(folder.path()));
    let stranger = tempfile::tempdir().unwrap();
    certify(stranger.path());
    for (proxy, why) in [
        ("http://127.0.0.1:1".to_owned(), "Connection refused"),
        ("https://127.0.0.1:1".to_owned(), "Connection refused"),
        ("socks5h://127.0.0.1:1".to_owned(), "Connection refused"),
        (
            "http://proxy.invalid:1".to_owned(),
            "failed to lookup address information",
        ),
        (
            format!("https://{}", secure.address),
            "invalid peer certificate",
        ),
    ] {
        let with_login = proxy.replacen("://", "://user:hidden@", 1);
        let urls = ["http://a.example/", "https://a.example/"];
        let said = run(fetch(stranger.path(), &with_login).args(urls));
        assert_eq!(said.code, 1, "{}", said.err);
        for row in said.rows() {
            let error = row["error"].as_str().unwrap();
            let begin = format!("no connection: through {proxy}: {why}");
            assert!(error.starts_with(&begin), "{error}");
        }
        assert!(!said.out.contains("hidden") && !said.err.contains("hidden"));
    }
}
