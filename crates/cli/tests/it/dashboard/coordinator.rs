//! `politely serve` on a free port, and calls of workers and operators.

use std::path::Path;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::write_secret;
use politely_testkit::process::Server;

/// The real binary, which is stopped when this value is dropped.
pub(super) struct Coordinator {
    pub(super) address: String,
    client: reqwest::Client,
    _process: Server,
    _folder: TempDir,
}

impl Coordinator {
    pub(super) fn start(token: Option<&str>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default(); // fails if it is installed
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let args = [
            "serve",
            "--memory",
            "--bind=127.0.0.1:0",
            "--profile=api",
            "--law=fixed",
            "--rate=1000",
            "--burst=1000",
            "--in-flight=8",
        ];
        let mut command: Vec<String> = args.map(str::to_owned).to_vec();
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let file = folder.path().join("token");
            write_secret(&file, token);
            command.push(format!("--token-file={}", file.display()));
            let bearer = format!("Bearer {token}").parse().expect("a header");
            headers.insert("authorization", bearer);
        }
        let mut process = Server::start("politely", folder.path(), program, command);
        let client = reqwest::Client::builder();
        let line = process.says("politely: http://");
        let address = line.trim_start_matches("politely: ").to_owned();
        Self {
            address,
            client: client.default_headers(headers).build().expect("a client"),
            _process: process,
            _folder: folder,
        }
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: &Value) -> Value {
        let url = format!("{}/api/v1/{path}", self.address);
        let request = self.client.request(method, url);
        let request = request.header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await;
        let answer = answer.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        assert!(status.is_success(), "{path}: {status}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Acquires a permit of each key for `client`.
    pub(super) async fn acquire(&self, client: &str, keys: &[&str]) -> Vec<String> {
        let items: Vec<Value> = keys.iter().map(|key| json!({ "key": key })).collect();
        let asked = json!({ "client": client, "items": items });
        let answer = self.call(reqwest::Method::POST, "acquire", &asked).await;
        let items = answer["items"].as_array().expect("items");
        let permit = |item: &Value| item["permit"].as_str().map(str::to_owned);
        items
            .iter()
            .map(|item| permit(item).unwrap_or_else(|| panic!("no permit: {item}")))
            .collect()
    }

    /// Acquires a permit of each key for `client`, and reports a response with `status` and
    /// `headers`.
    pub(super) async fn visit(&self, client: &str, keys: &[&str], status: u16, headers: Value) {
        let permits = self.acquire(client, keys).await;
        let told = |permit: &String| json!({ "permit": permit, "status": status, "headers": headers, "latency_ms": 80.0 });
        let items: Vec<Value> = permits.iter().map(told).collect();
        let report = json!({ "client": client, "items": items });
        self.call(reqwest::Method::POST, "report", &report).await;
    }

    pub(super) async fn patch(&self, key: &str, patch: Value) {
        let path = format!("keys/{key}");
        self.call(reqwest::Method::PATCH, &path, &patch).await;
    }

    pub(super) async fn key(&self, key: &str) -> Value {
        let path = format!("keys/{key}");
        self.call(reqwest::Method::GET, &path, &json!({})).await
    }
}
