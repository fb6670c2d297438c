//! The peer: a minimal axum server with the same bodies. It parses them as JSON of the same types
//! and sends a prepared answer.

use std::net::SocketAddr;

use axum::Json;
use axum::routing::post;
use politely_api::wire::{
    Acquire, Acquired, Answer, Exchange, Exchanged, Grant, Item, Next, Report, Reported, Told,
    ToldAnswer,
};
use tokio::net::TcpListener;

use super::load::PERMIT;

pub(super) async fn serve() -> SocketAddr {
    let acquire = |Json(call): Json<Acquire>| async move {
        Json(Acquired {
            items: grants(&call.items),
            retry_in_ms: None,
            share: None,
        })
    };
    let report = |Json(call): Json<Report>| async move {
        Json(Reported {
            items: answers(&call.items),
        })
    };
    let exchange = |Json(call): Json<Exchange>| async move {
        Json(Exchanged {
            report: answers(&call.report),
            acquire: grants(&call.acquire),
            retry_in_ms: None,
            share: None,
        })
    };
    let router = axum::Router::new()
        .route("/api/v1/acquire", post(acquire))
        .route("/api/v1/report", post(report))
        .route("/api/v1/exchange", post(exchange));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn grants(items: &[Item]) -> Vec<Answer> {
    let grant = |item| {
        Answer::Granted(Grant {
            item,
            permit: PERMIT.to_owned(),
            key: "host-12-34.example.com".to_owned(),
            start_in_ms: 0,
            valid_for_ms: 50,
            lease_ms: 119_999,
            slots: 1,
            interval_ms: 0.0,
            send_bodies: None,
            limit: None,
        })
    };
    (0..items.len() as u32).map(grant).collect()
}

fn answers(told: &[Told]) -> Vec<ToldAnswer> {
    let answer = |told: &Told| ToldAnswer {
        permit: told.permit.clone(),
        next: Next::Done,
        rate: 1e9,
        ..ToldAnswer::default()
    };
    told.iter().map(answer).collect()
}
