//! One attempt over HTTP: send, read, and say what came, within a time and a size.
//!
//! Redirects are not followed here, each hop is a request of its own with its own leave. A body is read as it
//! comes and never held whole (unless asked for, as for robots.txt), so a body without end costs nothing but
//! its allowance, and one that unpacks to gigabytes is dropped at the same mark: what counts is its size decoded.

use std::error::Error as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use politely::core::signal::{BODY_SCANNED, Failure};
use url::Url;

use super::save::Saving;
use crate::config::Settings;
use crate::exit::{Wrong, io_words};

/// One client per way out that keeps its connections, and one that does not.
pub(crate) struct Clients {
    keeping: Vec<reqwest::Client>,
    /// For runs over more hosts than there are descriptors for idle connections.
    fresh: Vec<reqwest::Client>,
    /// Hosts up to which connections are kept.
    keep_hosts_max: usize,
    timeout: Duration,
    body_max: u64,
}

/// What came.
pub(crate) enum Came {
    Answer(Answer),
    /// No whole answer, and what to say about it.
    Failed(Failure, String),
}

/// A whole answer, or as much of it as was wanted.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) latency: Duration,
    /// Decoded.
    pub(crate) bytes: u64,
    /// The body's beginning, by which block pages are told; all of it if the whole was wanted.
    pub(crate) start: Bytes,
    /// What is wrong with a body whose head was fine.
    pub(crate) spoiled: Option<String>,
}

/// What to do with the body.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Count it.
    Count,
    /// Count it and write it below this folder.
    Save(&'a Path),
    /// Keep up to so many bytes and read no further.
    Keep(usize),
}

/// A connection that takes longer to be made is not worth its slot.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Descriptors for everything that is no connection to a host.
const DESCRIPTORS_APART: usize = 64;
/// Where nobody tells how many there may be: the usual limit.
const DESCRIPTORS_USUAL: usize = 1024;
/// How much of a body nobody wants is read to keep its connection.
const DISCARD_MAX: u64 = 64 * 1024;

impl Clients {
    /// `per_host`: requests in flight per host, so that many connections may lie idle there.
    pub(crate) fn new(settings: &Settings, per_host: usize) -> Result<Self, Wrong> {
        let build = |proxy: Option<&str>, keep: usize| {
            let mut client = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(&settings.user_agent)
                .connect_timeout(settings.timeout.min(CONNECT_MAX))
                .pool_max_idle_per_host(keep)
                .no_proxy();
            if let Some(proxy) = proxy {
                client = client.proxy(reqwest::Proxy::all(proxy)?);
            }
            client.build()
        };
        let each = |keep: usize| {
            let clients: Result<Vec<_>, reqwest::Error> = if settings.proxies.is_empty() {
                build(None, keep).map(|client| vec![client])
            } else {
                let proxies = settings.proxies.iter();
                proxies.map(|proxy| build(Some(proxy), keep)).collect()
            };
            clients.map_err(|why| Wrong(format!("no HTTP client: {}", innermost(&why))))
        };
        let concurrency = settings.concurrency as usize;
        let idle_max = descriptors().saturating_sub(concurrency + DESCRIPTORS_APART);
        Ok(Self {
            keeping: each(concurrency)?,
            fresh: each(0)?,
            keep_hosts_max: idle_max / per_host.clamp(1, concurrency),
            timeout: settings.timeout,
            body_max: settings.max_body,
        })
    }

    /// The client for way out `egress` in a run over `hosts` hosts.
    fn client(&self, egress: usize, hosts: usize) -> &reqwest::Client {
        let by_egress = if hosts <= self.keep_hosts_max {
            &self.keeping
        } else {
            &self.fresh
        };
        &by_egress[egress % by_egress.len()]
    }

    /// Sends a GET for `url` through way out `egress`, in a run over `hosts` hosts.
    pub(crate) async fn get(
        &self,
        egress: usize,
        hosts: usize,
        url: &Url,
        body: Body<'_>,
    ) -> (Came, Duration) {
        let began = Instant::now();
        let came = match tokio::time::timeout(
            self.timeout,
            self.attempt(self.client(egress, hosts), url, body, began),
        )
        .await
        {
            Ok(came) => came,
            Err(_) => Came::Failed(
                Failure::Timeout,
                format!("no whole answer within {:?}", self.timeout),
            ),
        };
        (came, began.elapsed())
    }

    async fn attempt(
        &self,
        client: &reqwest::Client,
        url: &Url,
        body: Body<'_>,
        began: Instant,
    ) -> Came {
        let mut response = match client.get(url.clone()).send().await {
            Ok(response) => response,
            Err(error) => return failed(&error),
        };
        let mut answer = Answer {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            latency: began.elapsed(),
            bytes: 0,
            start: Bytes::new(),
            spoiled: None,
        };
        let fine = answer.status.is_success();
        let max = if fine {
            self.body_max
        } else {
            self.body_max.min(DISCARD_MAX)
        };
        let start_max = match body {
            Body::Keep(max) => max,
            // Nobody hides a closed door behind a plain success (see `block_page`).
            _ if fine && answer.status != StatusCode::ACCEPTED => 0,
            _ => BODY_SCANNED,
        };
        let mut saving = match body {
            Body::Save(dir) if fine => match Saving::begin(dir, url) {
                Ok(saving) => Some(saving),
                Err(why) => {
                    answer.spoiled = Some(format!("{}: {}", dir.display(), io_words(&why)));
                    return Came::Answer(answer);
                }
            },
            _ => None,
        };
        let mut start = Start::default();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // An error page that breaks off has said enough by its status.
                Err(_) if !fine => break,
                Err(error) => return failed(&error),
            };
            answer.bytes += chunk.len() as u64;
            if answer.bytes > max {
                if fine && !matches!(body, Body::Keep(_)) {
                    answer.spoiled = Some(format!("body exceeds {max} bytes (--max-body)"));
                }
                start.push(&chunk, start_max);
                break;
            }
            start.push(&chunk, start_max);
            if let Some(saving) = &mut saving
                && let Err(why) = saving.push(&chunk)
            {
                answer.spoiled = Some(format!("not saved: {}", io_words(&why)));
                break;
            }
            if matches!(body, Body::Keep(max) if answer.bytes > max as u64) {
                break;
            }
        }
        if answer.spoiled.is_none()
            && let Some(Err(why)) = saving.map(Saving::finish)
        {
            answer.spoiled = Some(format!("not saved: {}", io_words(&why)));
        }
        answer.start = start.done();
        Came::Answer(answer)
    }
}

impl Answer {
    /// Where a redirect leads; `None` if this is none.
    pub(crate) fn leads_to(&self, from: &Url) -> Option<Result<Url, String>> {
        if !matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let Some(location) = self.headers.get(LOCATION) else {
            return Some(Err("redirect without a Location".to_owned()));
        };
        let to = std::str::from_utf8(location.as_bytes())
            .ok()
            .and_then(|to| from.join(to).ok());
        Some(match to {
            Some(to) if matches!(to.scheme(), "http" | "https") && to.has_host() => Ok(to),
            _ => Err("redirect to something that is no web address".to_owned()),
        })
    }
}

/// How many descriptors this process may have (the soft limit, as Linux tells it).
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok())
        .unwrap_or(DESCRIPTORS_USUAL)
}

/// The body's first bytes; a first chunk that is large enough is kept without copying.
#[derive(Default)]
struct Start {
    first: Bytes,
    more: Vec<u8>,
}

impl Start {
    fn push(&mut self, chunk: &Bytes, max: usize) {
        if max == 0 {
            return;
        }
        if self.first.is_empty() && self.more.is_empty() {
            self.first = chunk.slice(..chunk.len().min(max));
            return;
        }
        if self.more.is_empty() {
            if self.first.len() >= max {
                return;
            }
            self.more.extend_from_slice(&self.first);
        }
        let room = max.saturating_sub(self.more.len());
        self.more.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    fn done(self) -> Bytes {
        if self.more.is_empty() {
            self.first
        } else {
            self.more.into()
        }
    }
}

fn failed(error: &reqwest::Error) -> Came {
    let (failure, words) = tell(error);
    Came::Failed(failure, words)
}

/// Which failure an error is: its causes are looked through from the outside in.
fn tell(error: &reqwest::Error) -> (Failure, String) {
    let words = innermost(error);
    let mut cause = error.source();
    let mut kind = None;
    let mut dns = false;
    let mut tls = false;
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            kind = Some(io.kind());
            tls |= io
                .get_ref()
                .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
        }
        tls |= error.is::<rustls::Error>();
        dns |= error.to_string() == "dns error";
        cause = error.source();
    }
    let failure = if error.is_timeout() {
        Failure::Timeout
    } else if dns {
        // EAI_AGAIN is the resolver's trouble; any other answer is about the name.
        if words.contains("emporary failure") {
            Failure::Resolver
        } else {
            Failure::NoSuchHost
        }
    } else if tls {
        Failure::Tls
    } else if error.is_connect() {
        Failure::Connect
    } else if words.contains("end of file before message length") {
        // Any broken body comes wrapped as one that cannot be decoded.
        Failure::Reset
    } else {
        use std::io::ErrorKind::{InvalidData, InvalidInput};
        match kind {
            Some(InvalidData | InvalidInput) => Failure::Malformed,
            None if error.is_decode() || error.is_builder() => Failure::Malformed,
            None if words.contains("invalid HTTP") || words.contains("parse") => Failure::Malformed,
            _ => Failure::Reset,
        }
    };
    (failure, words)
}

/// The last cause's words: the outer ones only repeat the URL.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect()
}
