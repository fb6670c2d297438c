//! Several coordinators over HTTP, some of which do not answer.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::RemoteError;
use super::super::call::{Call, Reply, Transport, Trouble};
use super::super::http::Http;
use crate::wire::{Acquired, Answer, Exchange, Exchanged, RefusedCode};

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

async fn exchange(http: &Http) -> Result<Reply, Trouble> {
    http.call(&Call::Exchange(Exchange::default(), Vec::new()))
        .await
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
    let http = Http::new(&urls, None, None).unwrap();
    assert!(matches!(exchange(&http).await, Err(Trouble::Away(_))));
    // The pause of 30 s applies only if this coordinator is the only one.
    assert!(matches!(exchange(&http).await, Err(Trouble::Away(_))));
    for refused in [1, 0, 0] {
        let Reply::Exchanged(said) = exchange(&http).await.unwrap() else {
            panic!("an exchange is answered with one");
        };
        assert_eq!(said.acquire.len(), refused);
    }
}

#[tokio::test]
async fn one_alone_is_called_again() {
    let body = serde_json::to_string(&Acquired::default()).unwrap();
    let busy = says("503 Service Unavailable\r\nretry-after: 30", body).await;
    let http = Http::new(&format!("http://{busy}"), None, None).unwrap();
    for _ in 0..2 {
        assert!(
            matches!(exchange(&http).await, Err(Trouble::Busy(after)) if after.as_secs() == 30)
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
        let why = Http::new(urls, None, None).err().unwrap();
        assert!(
            matches!(&why, RemoteError::Url(url, _) if url == wrong),
            "{why}"
        );
    }
}
