//! A coordinator on a free port, and calls to it.

use std::net::SocketAddr;

use politely_server::{
    Caps, Coordinator, FrontierService, Options, Reload, Server, Settings, Token, Tokens,
};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) coordinator: Coordinator,
    pub(crate) reload: Reload,
    pub(crate) http: reqwest::Client,
    end: Option<oneshot::Sender<()>>,
    running: JoinHandle<bool>,
}

pub(crate) async fn serve(settings: Settings, token: Option<&str>) -> Served {
    let tokens = token.map(|token| Token::new(token).unwrap().into());
    start(Coordinator::new(settings).unwrap(), tokens, Caps::default()).await
}

/// Serves `coordinator` to callers with one of `tokens`, under `caps`.
pub(crate) async fn start(coordinator: Coordinator, token: Option<Tokens>, caps: Caps) -> Served {
    start_with(coordinator, token, caps, None).await
}

/// As [`start`], with a frontier.
pub(crate) async fn start_with(
    coordinator: Coordinator,
    token: Option<Tokens>,
    caps: Caps,
    frontier: Option<FrontierService>,
) -> Served {
    let options = Options {
        bind: "127.0.0.1:0".parse().unwrap(),
        token,
        certificate: None,
        frontier,
        grpc: None,
        commit: "unknown",
        collector: None,
    };
    let server = Server::bind(coordinator.clone(), options).await.unwrap();
    let server = server.caps(caps);
    let reload = server.reload();
    let address = server.address();
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = ended.await;
    }));
    let _ = rustls::crypto::ring::default_provider().install_default();
    Served {
        address,
        coordinator,
        reload,
        http: reqwest::Client::new(),
        end: Some(end),
        running,
    }
}

impl Served {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        let request = self
            .http
            .request(method, self.url(path))
            .header("content-type", "application/json")
            .body(body.to_owned());
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, value)
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Value {
        let (status, value) = self
            .call(Method::POST, &format!("/api/v1/{path}"), body)
            .await;
        assert_eq!(status, 200, "{value}");
        value
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, value) = self.call(Method::GET, path, "").await;
        assert_eq!(status, 200, "{value}");
        value
    }

    /// Ends the coordinator as Ctrl-C does, and waits until it has ended.
    pub(crate) async fn end(mut self) {
        let _ = self.end.take().unwrap().send(());
        assert!(self.running.await.unwrap(), "all was saved");
    }
}
