//! A client of the coordinator's API, for an operator.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use politely::wire::{FleetStats, KeyDetail, KeyPage, KeyPatch, KeysQuery, Problem};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use crate::exit::{Wrong, io_words, url_words};
use crate::token::Token;

/// The maximum time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// The maximum time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The maximum size of an answer, in bytes. A thousand rows are far shorter.
const ANSWER_MAX: usize = 8 << 20;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The coordinator does not answer.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// The coordinator requires a token, or another one.
    #[error(
        "the coordinator refuses: the token of POLITELY_TOKEN or --token-file is missing or wrong"
    )]
    Token,
    /// The coordinator understood the call and refuses it.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The requested object does not exist.
    #[error("not known")]
    Unknown,
    /// The answer is not one of this API.
    #[error("this is no coordinator, or of another version: {0}")]
    Unreadable(String),
}

/// Calls a coordinator. Of several that share their keys, it calls the first that answers.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    bases: Arc<[Url]>,
    /// The index of the coordinator that answered last.
    current: Arc<AtomicUsize>,
}

impl Client {
    /// Returns a client of the coordinators at `urls`, separated by commas.
    pub(super) fn new(urls: &str, token: Option<&Token>) -> Result<Self, Wrong> {
        let bases = urls.split(',').map(|url| base(url.trim()));
        let bases = bases.collect::<Result<Arc<[Url]>, _>>()?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.text.trim()));
            let unusable = |_| Wrong(format!("{}: no usable token", token.place));
            let mut bearer = bearer.map_err(unusable)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIME)
            .timeout(ANSWER_TIME)
            .build()
            .map_err(|why| Wrong::no_client(&reason(&why)))?;
        Ok(Self {
            http,
            bases,
            current: Arc::default(),
        })
    }

    /// Returns the fleet's numbers, without its workers.
    pub(super) async fn stats(&self) -> Result<FleetStats, Fault> {
        self.ask(|base| {
            let mut url = at(base, "stats");
            url.set_query(Some("workers=0"));
            self.http.get(url)
        })
        .await
    }

    /// Returns part of the table.
    pub(super) async fn keys(&self, query: &KeysQuery) -> Result<KeyPage, Fault> {
        let fields = serde_json::to_value(query).unwrap_or_default();
        self.ask(|base| {
            let mut url = at(base, "keys");
            for (name, value) in fields.as_object().into_iter().flatten() {
                let value = match value {
                    serde_json::Value::Null => continue,
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                url.query_pairs_mut().append_pair(name, &value);
            }
            self.http.get(url)
        })
        .await
    }

    /// Returns the details of one key.
    pub(super) async fn key(&self, name: &str) -> Result<KeyDetail, Fault> {
        self.ask(|base| self.http.get(of(base, name))).await
    }

    /// Applies `patch` to one key.
    pub(super) async fn patch(&self, name: &str, patch: &KeyPatch) -> Result<KeyDetail, Fault> {
        let body = serde_json::to_vec(patch).unwrap_or_default();
        self.ask(|base| {
            let call = self.http.patch(of(base, name)).body(body.clone());
            call.header(CONTENT_TYPE, "application/json")
        })
        .await
    }

    /// Calls the coordinator that answered last. If it does not answer, calls each of the others
    /// once.
    async fn ask<T: DeserializeOwned>(
        &self,
        call: impl Fn(&Url) -> RequestBuilder,
    ) -> Result<T, Fault> {
        let first = self.current.load(Ordering::Relaxed);
        let count = self.bases.len();
        let mut fault = None;
        for place in (first..first + count).map(|place| place % count) {
            match answer(call(&self.bases[place])).await {
                Err(why @ Fault::Unreachable(_)) => _ = fault.get_or_insert(why),
                answer => {
                    self.current.store(place, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(fault.expect("there is one coordinator at least"))
    }
}

/// Returns the API's address below a coordinator's URL.
fn base(url: &str) -> Result<Url, Wrong> {
    let wrong = |why: &str| Wrong(format!("--coordinator `{url}`: {why}"));
    let mut base = Url::parse(url).map_err(|why| wrong(&url_words(why)))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(wrong("the URL must start with http:// or https://"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        let why =
            "a URL is for everybody to see: the token goes into POLITELY_TOKEN or --token-file";
        return Err(Wrong(format!("--coordinator: {why}")));
    }
    base.set_query(None);
    base.set_fragment(None);
    let path = format!("{}/api/v1/", base.path().trim_end_matches('/'));
    base.set_path(&path);
    Ok(base)
}

fn at(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path()));
    url
}

fn of(base: &Url, key: &str) -> Url {
    let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
    at(base, &format!("keys/{key}"))
}

async fn answer<T: DeserializeOwned>(call: RequestBuilder) -> Result<T, Fault> {
    let broken = |why: reqwest::Error| Fault::Unreachable(reason(&why));
    let mut response = call.send().await.map_err(broken)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > ANSWER_MAX {
            return Err(Fault::Unreadable("its answer does not end".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    match response.status() {
        StatusCode::OK => {
            serde_json::from_slice(&body).map_err(|why| Fault::Unreadable(why.to_string()))
        }
        StatusCode::UNAUTHORIZED => Err(Fault::Token),
        status => Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(_) if status == StatusCode::NOT_FOUND => Fault::Unknown,
            Ok(problem) => Fault::Refused(problem.detail),
            Err(_) => Fault::Unreadable(format!("it answers {status}")),
        }),
    }
}

/// Returns the words of the innermost error.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "nothing came in time".to_owned();
    }
    let mut innermost: &(dyn Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let io = innermost.downcast_ref::<std::io::Error>();
    io.map_or_else(|| innermost.to_string(), io_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token {
            text: text.to_owned(),
            place: "a file".to_owned(),
        }
    }

    #[test]
    fn a_key_is_one_segment_of_the_path() {
        let url = |url: &str, key: &str| of(&base(url).unwrap(), key).to_string();
        let site = url("http://127.0.0.1:7077", "site/a.example");
        assert_eq!(site, "http://127.0.0.1:7077/api/v1/keys/site%2Fa%2Eexample");
        let below = url("https://ops.example/politely/?x#y", "a?b");
        assert_eq!(below, "https://ops.example/politely/api/v1/keys/a%3Fb");
    }

    #[test]
    fn what_cannot_be_called_is_refused_in_one_line() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (url, token, word) in [
            (
                "127.0.0.1:7077",
                None,
                "--coordinator `127.0.0.1:7077`: it must begin with http://",
            ),
            ("localhost:7077", None, "must start with http://"),
            ("http://a:1, b", None, "--coordinator `b`: "),
            ("http://a:1,", None, "--coordinator ``: "),
            (
                "http://:secret@127.0.0.1",
                None,
                "a URL is for everybody to see",
            ),
            (
                "http://127.0.0.1",
                Some(token("a\nb")),
                "a file: no usable token",
            ),
        ] {
            let why = Client::new(url, token.as_ref()).expect_err(url).to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
