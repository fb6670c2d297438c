//! Tests with real failures of a real client: which are given up at once, and which are tried
//! again.

use std::io;
use std::time::Duration;

use politely::attempts::{Attempts, failure_of};
use politely::core::retry::Policy;
use politely::{Failure, Key, Limiter};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest_middleware::ClientWithMiddleware;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{limiter, quick};

/// A resolver that finds no name.
struct NoNames(&'static str);

impl Resolve for NoNames {
    fn resolve(&self, _: Name) -> Resolving {
        let words = format!("failed to lookup address information: {}", self.0);
        Box::pin(async move { Err(io::Error::other(words).into()) })
    }
}

fn client(policy: Policy, resolver: &'static str) -> (ClientWithMiddleware, Limiter) {
    let limiter = limiter(500.0);
    crate::server::tls_provider();
    let settings = || {
        reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_millis(200))
            .dns_resolver(NoNames(resolver))
    };
    let attempts = Attempts::new(limiter.clone()).policy(policy);
    let client = politely::middleware::client_with(settings, attempts).unwrap();
    (client, limiter)
}

/// Returns how `url` fails, and after how many attempts.
async fn fails(policy: Policy, resolver: &'static str, url: &str) -> (Option<Failure>, u64) {
    let (client, limiter) = client(policy, resolver);
    let error = match client.get(url).send().await {
        Err(reqwest_middleware::Error::Reqwest(error)) => error,
        other => panic!("{other:?}"),
    };
    let tally = limiter.explain(&Key::host(url).unwrap()).unwrap().tally;
    assert_eq!(tally.live, 0);
    (failure_of(&error), tally.reported)
}

/// Returns a policy with few attempts, because the breaker rests for a second from the fifth
/// failure on.
fn twice() -> Policy {
    Policy {
        attempts_max: 2,
        ..quick()
    }
}

#[tokio::test]
async fn an_unknown_name_is_given_up_at_once() {
    let (failure, attempts) =
        fails(twice(), "Name or service not known", "http://a.example/").await;
    assert_eq!((failure, attempts), (Some(Failure::NoSuchHost), 1));
}

#[tokio::test]
async fn a_resolver_in_trouble_is_asked_again() {
    let words = "Temporary failure in name resolution";
    let (failure, attempts) = fails(twice(), words, "http://a.example/").await;
    assert_eq!((failure, attempts), (Some(Failure::Resolver), 2));
}

#[tokio::test]
async fn a_refused_connection_is_as_final_as_the_policy_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let scraper = Policy {
        permanent: Policy::job_scraper().permanent,
        ..twice()
    };
    assert_eq!(fails(scraper, "", &url).await, (Some(Failure::Connect), 1));
    assert_eq!(fails(twice(), "", &url).await, (Some(Failure::Connect), 2));
}

#[tokio::test]
async fn a_connection_broken_before_the_answer() {
    let url = answers(b"").await;
    assert_eq!(fails(twice(), "", &url).await, (Some(Failure::Reset), 2));
}

#[tokio::test]
async fn what_is_not_http_is_given_up_at_once() {
    let url = answers(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    assert_eq!(
        fails(twice(), "", &url).await,
        (Some(Failure::Malformed), 1)
    );
}

#[tokio::test]
async fn a_silent_server_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    assert_eq!(fails(twice(), "", &url).await, (Some(Failure::Timeout), 2));
}

/// Starts a server that reads each request, answers with `bytes` and closes the connection.
async fn answers(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            answer_raw(&mut stream, bytes).await;
        }
    });
    url
}

pub(crate) async fn answer_raw(stream: &mut TcpStream, bytes: &[u8]) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await.unwrap();
    stream.write_all(bytes).await.unwrap();
}
