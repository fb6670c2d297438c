//! The HTTP client of the exporters.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};

/// The longest time for one batch.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends batches, and reports once that the collector does not take them.
///
/// The exporters run on threads of their own, which a blocking call may stop.
pub(crate) struct Client {
    http: reqwest::blocking::Client,
    url: String,
    /// The last batch was not taken.
    is_away: AtomicBool,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl Client {
    /// Creates a client for the collector at `url`. It panics if the process has no TLS provider.
    pub(crate) fn new(
        url: &str,
        tell: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            http: reqwest::blocking::Client::builder()
                .timeout(TIMEOUT)
                .build()?,
            url: url.to_owned(),
            is_away: AtomicBool::new(false),
            tell,
        })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, reqwest::Error> {
        let answer = self.http.execute(request.try_into()?)?;
        let status = answer.status();
        let headers = answer.headers().clone();
        let mut response = Response::new(answer.bytes()?);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Reports the first failure, and the first success after one.
    fn note(&self, failure: Option<&str>) {
        let was_away = self.is_away.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(why) if !was_away => (self.tell)(&format!(
                "the collector {} does not take spans and metrics: {why}; they are dropped until \
                 it does",
                self.url
            )),
            None if was_away => (self.tell)(&format!(
                "the collector {} takes spans and metrics again",
                self.url
            )),
            _ => {}
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.url).finish()
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request);
        let failure = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(why) => Some(innermost(why)),
        };
        self.note(failure.as_deref());
        Ok(sent?)
    }
}

/// Returns the text of the first cause, such as "connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => innermost(cause),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_collector_that_is_away_is_reported_once() {
        // An error says that another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lines);
        let tell = move |line: &str| told.lock().push(line.to_owned());
        let client = Client::new("http://c:4318", Box::new(tell)).unwrap();
        for failure in [None, Some("refused"), Some("refused"), None, None] {
            client.note(failure);
        }
        let lines = lines.lock();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("http://c:4318 does not take"),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("again"), "{lines:?}");
    }
}
