//! Several coordinators over HTTP, some of which do not answer.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::wire::Acquired;

/// Starts a server that gives this answer to every call, on one connection per call.
async fn says(status: &'static str, body: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let _ = stream.read(&mut asked).await;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// Returns an address without a listener.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

fn exchanged(acquire: Vec<Answer>) -> String {
    let said = Exchanged {
        acquire,
        ..Exchanged::default()
    };
    serde_json::to_string(&said).unwrap()
}

async fn exchange(client: &Client) -> Result<Exchanged, CallError> {
    client.exchange(&Exchange::default()).await
}

#[tokio::test]
async fn the_next_is_called_where_one_is_away_or_ending() {
    let ending = exchanged(vec![Answer::Refused {
        item: 0,
        code: RefusedCode::Closing,
        reason: String::new(),
        retry_in_ms: None,
    }]);
    let places = [
        nobody().await,
        says("503 Service Unavailable\r\nretry-after: 30", String::new()).await,
        says("200 OK", ending).await,
        says("200 OK", exchanged(Vec::new())).await,
    ];
    let urls = places.map(|place| format!("http://{place}/")).join(", ");
    let client = Client::new(&urls, None, None).unwrap();
    assert!(matches!(
        exchange(&client).await,
        Err(CallError::Unavailable(_))
    ));
    // The pause of 30 s applies only if this coordinator is the only one.
    assert!(matches!(
        exchange(&client).await,
        Err(CallError::Unavailable(_))
    ));
    for refused in [1, 0, 0] {
        let said = exchange(&client).await.unwrap();
        assert_eq!(said.acquire.len(), refused);
    }
}

#[tokio::test]
async fn one_alone_is_called_again() {
    let body = serde_json::to_string(&Acquired::default()).unwrap();
    let busy = says("503 Service Unavailable\r\nretry-after: 30", body).await;
    let client = Client::new(&format!("http://{busy}"), None, None).unwrap();
    for _ in 0..2 {
        assert!(
            matches!(exchange(&client).await, Err(CallError::Busy { retry_after, .. }) if retry_after.as_secs() == 30)
        );
    }
}

#[test]
fn a_wrong_one_of_several_is_named() {
    for (urls, wrong) in [
        ("http://a:1,ftp://b", "ftp://b"),
        ("http://a:1,", "http://a:1,"),
        ("http://a:1,b:2", "b:2"),
    ] {
        let why = Client::new(urls, None, None).err().unwrap();
        assert!(
            matches!(&why, ClientError::Url(url, _) if url == wrong),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_call_at_each_ends_at_the_first_that_serves() {
    let fleet = serde_json::to_string(&FleetStats::default()).unwrap();
    let places = [
        nobody().await,
        says("503 Service Unavailable\r\nretry-after: 30", String::new()).await,
        says("200 OK", fleet).await,
    ];
    let urls = places.map(|place| format!("http://{place}/")).join(", ");
    let client = Client::new(&urls, None, None).unwrap();
    assert!(client.at_each(Client::stats).await.is_ok());
    // The next call goes to the coordinator that served.
    assert!(client.stats().await.is_ok());

    let client = Client::new(&format!("http://{}", nobody().await), None, None).unwrap();
    let why = client.at_each(Client::stats).await.unwrap_err();
    assert_eq!(why.to_string(), "connection refused");
}

#[tokio::test]
async fn a_rejection_has_its_status_and_its_reason() {
    let problem = r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"no key"}"#;
    for (body, detail) in [(problem, Some("no key")), ("<html>", None)] {
        let place = says("404 Not Found", body.to_owned()).await;
        let client = Client::new(&format!("http://{place}"), None, None).unwrap();
        let expected = CallError::Rejected {
            status: StatusCode::NOT_FOUND,
            detail: detail.map(str::to_owned),
        };
        assert_eq!(client.key("a.example").await.unwrap_err(), expected);
    }
    let place = says("200 OK", "<html>".to_owned()).await;
    let client = Client::new(&format!("http://{place}"), None, None).unwrap();
    let why = client.stats().await.unwrap_err();
    assert!(matches!(why, CallError::Unreadable(_)), "{why}");
}

#[test]
fn a_key_is_one_segment_of_the_path() {
    assert_eq!(escaped("site/a.example"), "site%2Fa.example");
    assert_eq!(escaped("a?b c"), "a%3Fb%20c");
    let base = base("https://ops.example/politely/").unwrap();
    assert_eq!(base, "https://ops.example/politely/api/v1");
}

#[test]
fn a_secret_in_a_url_is_not_repeated() {
    let why = Client::new("http://:secret@127.0.0.1", None, None).unwrap_err();
    assert!(!why.to_string().contains("secret"), "{why}");
    let why = Client::new("http://127.0.0.1", Some("a\nb"), None).unwrap_err();
    assert_eq!(why, ClientError::Token);
}
