//! Webhooks: each event of some kinds is one POST to a URL of the operator.
//!
//! The requests follow the Standard Webhooks specification (standardwebhooks.com), version 1: the
//! header `webhook-id` stays the same over retries, and `webhook-signature` is an HMAC-SHA256 of
//! the id, the time and the body. Each webhook gets the events of this coordinator one after the
//! other. So in a fleet each event is sent once.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use politely_api::client::transport::{Pool, cause, pool, target};
use politely_api::wire::{Event, EventKind};
use ring::hmac;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use crate::often::Often;

/// The most events that wait for one webhook. Further events are dropped.
const WAITING_MAX: usize = 1_024;
/// The attempts of one event. After them the webhook is dead until the coordinator restarts.
const ATTEMPTS: u32 = 8;
/// The pause after the first failed attempt. It doubles with each further one, so that all attempts
/// take some two minutes.
const PAUSE: Duration = Duration::from_secs(1);
/// The time for one attempt.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The prefix of a secret.
const PREFIX: &str = "whsec_";
/// The allowed lengths of a secret in bytes, by the specification.
const SECRET_MIN: usize = 24;
const SECRET_MAX: usize = 64;

/// A webhook of the operator.
#[derive(Clone, Debug)]
pub struct Webhook {
    url: Url,
    kinds: Vec<EventKind>,
    secret: hmac::Key,
}

/// Why a webhook is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The URL is not one of HTTP.
    #[error("{0:?} is not the URL of a webhook; it begins with https:// or http://")]
    Url(String),
    /// There is no kind of events, or an unknown one.
    #[error(
        "{0:?} is no list of kinds; use some of hold, rate, breaker, quarantine, operator, config, lock"
    )]
    Kinds(Vec<String>),
    /// The secret is not a secret of the specification. The error omits it.
    #[error(
        "the secret of {0} is not `whsec_` and 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)"
    )]
    Secret(String),
}

impl Webhook {
    /// Creates a webhook for the events of `kinds`.
    ///
    /// # Errors
    /// The URL, a kind or the secret is invalid.
    pub fn new(url: &str, kinds: &[String], secret: &str) -> Result<Self, WebhookError> {
        let parsed = Url::parse(url).ok();
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let parsed = parsed.filter(is_http);
        let parsed = parsed.ok_or_else(|| WebhookError::Url(url.to_owned()))?;
        let kind = |name: &String| serde_json::from_value(name.clone().into()).ok();
        let known: Option<Vec<EventKind>> = kinds.iter().map(kind).collect();
        let known = known.filter(|known| !known.is_empty() && !known.contains(&EventKind::Missed));
        let known = known.ok_or_else(|| WebhookError::Kinds(kinds.to_vec()))?;
        let key = secret.trim().strip_prefix(PREFIX);
        let key = key.and_then(|key| STANDARD.decode(key).ok());
        let key = key.filter(|key| (SECRET_MIN..=SECRET_MAX).contains(&key.len()));
        let key = key.ok_or_else(|| WebhookError::Secret(url.to_owned()))?;
        Ok(Self {
            url: parsed,
            kinds: known,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &key),
        })
    }

    /// Returns the value of the header `webhook-signature`.
    fn sign(&self, id: &str, at_s: u64, body: &str) -> String {
        let signed = format!("{id}.{at_s}.{body}");
        let tag = hmac::sign(&self.secret, signed.as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

/// An event on its way to a webhook.
struct Message {
    id: String,
    body: String,
}

/// The body of a request.
#[derive(Serialize)]
struct Body<'a> {
    r#type: EventKind,
    timestamp: String,
    data: &'a Event,
}

/// The queues of all webhooks.
pub(crate) struct Webhooks {
    queues: Vec<Queue>,
}

struct Queue {
    webhook: Arc<Webhook>,
    messages: mpsc::Sender<Message>,
    drops: Often,
}

/// The other end of a queue.
pub(crate) struct Delivery {
    webhook: Arc<Webhook>,
    messages: mpsc::Receiver<Message>,
}

impl Webhooks {
    /// Returns the queues, and the deliveries that empty them.
    pub(crate) fn new(webhooks: Vec<Webhook>) -> (Self, Vec<Delivery>) {
        let queue_of = |webhook| {
            let (sender, messages) = mpsc::channel(WAITING_MAX);
            let webhook = Arc::new(webhook);
            let queue = Queue {
                webhook: Arc::clone(&webhook),
                messages: sender,
                drops: Often::default(),
            };
            (queue, Delivery { webhook, messages })
        };
        let (queues, deliveries) = webhooks.into_iter().map(queue_of).unzip();
        (Self { queues }, deliveries)
    }

    /// Adds an event to the queues of the webhooks that want its kind.
    pub(crate) fn put(&self, event: &Event) {
        for queue in &self.queues {
            let Queue {
                webhook, messages, ..
            } = queue;
            // A webhook that is dead has closed its queue.
            if !webhook.kinds.contains(&event.kind) || messages.is_closed() {
                continue;
            }
            if messages.try_send(Message::of(event)).is_err()
                && let Some(count) = queue.drops.note(Instant::now())
            {
                let url = shown(&webhook.url);
                tracing::warn!(
                    count,
                    "the queue of the webhook {url} is full; events were dropped"
                );
            }
        }
    }
}

impl Message {
    fn of(event: &Event) -> Self {
        let body = Body {
            r#type: event.kind,
            timestamp: jiff::Timestamp::now().to_string(),
            data: event,
        };
        Self {
            id: fresh_id(),
            body: serde_json::to_string(&body).unwrap_or_default(),
        }
    }
}

impl Delivery {
    /// Sends events until the queue ends or the webhook is dead.
    pub(crate) async fn run(mut self) {
        let url = shown(&self.webhook.url);
        let pool = match pool(None, TIMEOUT) {
            Ok(pool) => pool,
            Err(why) => return tracing::error!("the webhook {url} is dead: no HTTP client: {why}"),
        };
        while let Some(message) = self.messages.recv().await {
            if let Err(why) = self.deliver(&pool, &message).await {
                tracing::error!(
                    "the webhook {url} is dead after {ATTEMPTS} attempts: {why}; mend it and restart the coordinator"
                );
                return;
            }
        }
    }

    async fn deliver(&self, pool: &Pool, message: &Message) -> Result<(), String> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let why = match self.send(pool, message).await {
                Ok(status) if status.is_success() => return Ok(()),
                // The receiver wants no more events.
                Ok(StatusCode::GONE) => return Err("410 Gone".to_owned()),
                Ok(status) => status.to_string(),
                Err(why) => why,
            };
            if attempt == ATTEMPTS {
                return Err(why);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    async fn send(&self, pool: &Pool, message: &Message) -> Result<StatusCode, String> {
        let Message { id, body } = message;
        let (uri, login) = target(&self.webhook.url).map_err(|why| cause(&why))?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_s = since_1970.unwrap_or_default().as_secs();
        let mut request = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", at_s)
            .header("webhook-signature", self.webhook.sign(id, at_s, body))
            .body(Full::from(body.clone()))
            .map_err(|why| cause(&why))?;
        let headers = request.headers_mut();
        headers.extend(login.map(|login| (AUTHORIZATION, login)));
        let answer = tokio::time::timeout(TIMEOUT, pool.request(request)).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?;
        Ok(answer.map_err(|why| cause(&why))?.status())
    }
}

/// Returns an id that no other message has.
fn fresh_id() -> String {
    let part = |name| RandomState::new().hash_one((name, std::process::id()));
    format!("msg_{:016x}{:016x}", part("first"), part("second"))
}

/// Returns a URL without its login and query, which may be secrets.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn kinds(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The example of the specification's libraries.
    #[test]
    fn the_signature_is_that_of_the_specification() {
        let webhook = Webhook::new("https://a.example", &kinds(&["hold"]), SECRET).unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signature = webhook.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_bad_webhook_is_refused_in_one_line_without_its_secret() {
        let hold = kinds(&["hold"]);
        for (url, kinds, secret) in [
            ("ftp://a.example", &hold, SECRET),
            ("nonsense", &hold, SECRET),
            ("https://a.example", &kinds(&[]), SECRET),
            ("https://a.example", &kinds(&["holds"]), SECRET),
            ("https://a.example", &kinds(&["missed"]), SECRET),
            ("https://a.example", &hold, "hidden"),
            ("https://a.example", &hold, "whsec_hidden"),
            ("https://a.example", &hold, "whsec_aGlkZGVu"),
        ] {
            let error = Webhook::new(url, kinds, secret).expect_err(url).to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(
                !error.contains("hidden") && !error.contains("aGlk"),
                "{error}"
            );
        }
    }
}
