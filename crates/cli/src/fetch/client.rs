//! One attempt over HTTP: send, read, and say what came, within a time and a size.
//!
//! Redirects are not followed here, each hop is a request of its own with its own leave.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, StatusCode};
use politely::core::signal::{BODY_SCANNED, Failure};
use url::Url;

use super::body::{Enough, Intake, Sink};
use super::input::without_login;
use super::save::Saving;
use super::ways::{Way, next};
use crate::config::Settings;
use crate::exit::{Wrong, io_words};

/// Each way out once with kept connections, and once without.
pub(crate) struct Clients {
    keeping: Vec<Way>,
    /// For runs over more hosts than there are descriptors for idle connections.
    fresh: Vec<Way>,
    /// Hosts up to which connections are kept.
    keep_hosts_max: usize,
    /// By egress; none: directly.
    proxies: Vec<String>,
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

/// Descriptors for everything that is no connection to a host.
const DESCRIPTORS_APART: usize = 64;
/// Where nobody tells how many there may be: the usual limit.
const DESCRIPTORS_USUAL: usize = 1024;
/// How much of a body nobody wants is read to keep its connection.
const DISCARD_MAX: u64 = 64 * 1024;

impl Clients {
    /// `per_host`: requests in flight per host, so that many connections may lie idle there.
    pub(crate) fn new(settings: &Settings, per_host: usize) -> Result<Self, Wrong> {
        let each = |keep: usize| {
            let direct = [None];
            let proxies: Vec<_> = settings
                .proxies
                .iter()
                .map(|proxy| Some(&**proxy))
                .collect();
            let ways = if proxies.is_empty() {
                &direct
            } else {
                &proxies[..]
            };
            let ways = ways.iter().map(|proxy| Way::new(settings, *proxy, keep));
            ways.collect::<Result<Vec<_>, Wrong>>()
        };
        let concurrency = settings.concurrency as usize;
        let idle_max = descriptors().saturating_sub(concurrency + DESCRIPTORS_APART);
        Ok(Self {
            keeping: each(concurrency)?,
            fresh: each(0)?,
            keep_hosts_max: idle_max / per_host.clamp(1, concurrency),
            proxies: settings.proxies.clone(),
            timeout: settings.timeout,
            body_max: settings.max_body,
        })
    }

    /// Way out `egress` in a run over `hosts` hosts.
    fn way(&self, egress: usize, hosts: usize) -> &Way {
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
            self.attempt(self.way(egress, hosts), url, body, began),
        )
        .await
        {
            Ok(Came::Failed(Failure::Connect, why)) => {
                Came::Failed(Failure::Connect, self.through(egress) + &why)
            }
            Ok(came) => came,
            Err(_) => Came::Failed(
                Failure::Timeout,
                format!("no whole answer within {:?}", self.timeout),
            ),
        };
        (came, began.elapsed())
    }

    /// The words for what happened at a proxy, if way out `egress` is one.
    fn through(&self, egress: usize) -> String {
        let proxy = self.proxies.get(egress % self.proxies.len().max(1));
        proxy.map_or_else(String::new, |proxy| {
            format!("through {}: ", without_login(proxy))
        })
    }

    async fn attempt(&self, way: &Way, url: &Url, body: Body<'_>, began: Instant) -> Came {
        let (head, mut coming) = match way.get(url).await {
            Ok(response) => response.into_parts(),
            Err(error) => return failed(&*error),
        };
        let mut answer = Answer {
            status: head.status,
            headers: head.headers,
            latency: began.elapsed(),
            bytes: 0,
            start: Bytes::new(),
            spoiled: None,
        };
        let gzip = answer
            .headers
            .get(CONTENT_ENCODING)
            .is_some_and(|coding| coding == "gzip");
        if gzip {
            // They speak of what is on the wire.
            answer.headers.remove(CONTENT_ENCODING);
            answer.headers.remove(CONTENT_LENGTH);
        }
        answer.spoiled = unasked_part(&answer);
        let fine = answer.status.is_success() && answer.spoiled.is_none();
        let saving = match body {
            Body::Save(dir) if fine => match Saving::begin(dir, url) {
                Ok(saving) => Some(saving),
                Err(why) => {
                    answer.spoiled = Some(format!("{}: {}", dir.display(), io_words(&why)));
                    return Came::Answer(answer);
                }
            },
            _ => None,
        };
        let allowance = if fine {
            self.body_max
        } else {
            self.body_max.min(DISCARD_MAX)
        };
        let (bytes_max, start_max) = match body {
            Body::Keep(max) => (allowance.min(max as u64), max),
            // A challenge with status 200 is a short page (see `block_page`).
            _ if fine && !may_hide_block(&answer) => (allowance, 0),
            _ => (allowance, BODY_SCANNED),
        };
        let mut intake = Intake::new(gzip, Sink::new(bytes_max, start_max, saving));
        loop {
            let taken = match next(&mut coming).await {
                Ok(Some(part)) => intake.push(&part),
                Ok(None) => intake.end().map(|()| false),
                // An error page that breaks off has said enough by its status.
                Err(_) if !fine => break,
                Err(error) => return failed(&*error),
            };
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) if !fine => break,
                Err(error) => return failed(&error),
            }
        }
        let sink = intake.sink();
        let enough = match sink.enough.take() {
            Some(Enough::TooLong) if fine && !matches!(body, Body::Keep(_)) => {
                Some(format!("body exceeds {bytes_max} bytes (--max-body)"))
            }
            Some(Enough::NotSaved(why)) => Some(why),
            _ => None,
        };
        answer.spoiled = answer.spoiled.or(enough);
        answer.bytes = sink.bytes;
        answer.start = std::mem::take(&mut sink.start).into();
        Came::Answer(answer)
    }
}

/// Whether a good-looking answer may be a challenge or block page.
fn may_hide_block(answer: &Answer) -> bool {
    let length = answer.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let kind = answer.headers.get(CONTENT_TYPE);
    let is_html = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    answer.status == StatusCode::ACCEPTED
        || is_html && length.is_none_or(|length| length < BODY_SCANNED)
}

/// What is wrong with a 206: no part was requested. A part that is the whole (`bytes 0-9/10`) is a page.
fn unasked_part(answer: &Answer) -> Option<String> {
    if answer.status != StatusCode::PARTIAL_CONTENT {
        return None;
    }
    let range = answer.headers.get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok());
    let range = range.map(str::trim).unwrap_or_default();
    let is_whole = || {
        let (unit, numbers) = range.split_once(' ')?;
        let (part, whole) = numbers.split_once('/')?;
        let (first, last) = part.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let reaches_end = number(last)?.checked_add(1) == Some(number(whole)?);
        Some(unit.eq_ignore_ascii_case("bytes") && number(first)? == 0 && reaches_end)
    };
    let shown: String = range.chars().take(60).collect();
    (is_whole() != Some(true)).then(|| {
        format!("partial content ({shown}) that was not requested; the page is not complete")
    })
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
        let to = match std::str::from_utf8(location.as_bytes()) {
            Ok(to) => from.join(to),
            // Bytes of another encoding are meant as they are, as browsers take them.
            Err(_) => from.join(
                &location
                    .as_bytes()
                    .iter()
                    .copied()
                    .fold(String::new(), escaped),
            ),
        };
        Some(match to {
            Ok(to) if matches!(to.scheme(), "http" | "https") && to.has_host() => Ok(to),
            _ => Err("redirect to something that is no web address".to_owned()),
        })
    }
}

/// `text` with one more byte, which is written as `%XX` unless it is ASCII.
fn escaped(mut text: String, byte: u8) -> String {
    if byte.is_ascii() {
        text.push(char::from(byte));
    } else {
        // Writing to a string in memory cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
    text
}

/// How many descriptors this process may have.
fn descriptors() -> usize {
    let soft = rlimit::Resource::NOFILE.get_soft();
    soft.map_or(DESCRIPTORS_USUAL, |soft| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}

fn failed(error: &(dyn Error + 'static)) -> Came {
    Came::Failed(failure(error), innermost(error))
}

/// Which failure an error is, by all that caused it.
fn failure(error: &(dyn Error + 'static)) -> Failure {
    use io::ErrorKind::{InvalidData, InvalidInput, TimedOut};

    let causes = causes(error);
    let any = |is: fn(&(dyn Error + 'static)) -> bool| causes.iter().any(|cause| is(*cause));
    let timeout = any(|cause| {
        is(cause, |why: &io::Error| why.kind() == TimedOut) || is(cause, reqwest::Error::is_timeout)
    });
    let connect = any(|cause| {
        is(cause, hyper_util::client::legacy::Error::is_connect)
            || is(cause, reqwest::Error::is_connect)
    });
    let malformed = any(|cause| {
        cause.is::<http::uri::InvalidUri>()
            || is(cause, hyper::Error::is_parse)
            || is(cause, reqwest::Error::is_builder)
            || is(cause, |why: &io::Error| {
                matches!(why.kind(), InvalidData | InvalidInput)
            })
    });
    if timeout {
        Failure::Timeout
    } else if any(|cause| cause.to_string() == "dns error") {
        // EAI_AGAIN is the resolver's trouble; any other answer is about the name.
        if innermost(error).contains("emporary failure") {
            Failure::Resolver
        } else {
            Failure::NoSuchHost
        }
    } else if any(<dyn Error>::is::<rustls::Error>) {
        Failure::Tls
    } else if connect {
        Failure::Connect
    } else if malformed {
        Failure::Malformed
    } else {
        Failure::Reset
    }
}

fn is<E: Error + 'static>(error: &(dyn Error + 'static), what: impl Fn(&E) -> bool) -> bool {
    error.downcast_ref().is_some_and(what)
}

/// An error and its causes, from the outside in.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut causes = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        causes.push(error);
        let io = error.downcast_ref::<io::Error>();
        // What an I/O error is made of is not its source, only that one's source is.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    causes
}

/// The last cause's words: the outer ones only repeat the URL.
pub(super) fn innermost(error: &dyn Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_not_requested_is_a_page_only_if_it_is_the_whole() {
        let wrong = |status: u16, range: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(range) = range {
                headers.insert(CONTENT_RANGE, http::HeaderValue::from_static(range));
            }
            let answer = Answer {
                status: StatusCode::from_u16(status).expect("a status"),
                headers,
                latency: Duration::ZERO,
                bytes: 0,
                start: Bytes::new(),
                spoiled: None,
            };
            unasked_part(&answer).is_some()
        };
        for part in [
            "bytes 0-4/10",
            "bytes 1-9/10",
            "bytes 0-9/*",
            "bytes 0-9/11",
            "lines 0-9/10",
            "bytes */10",
            "",
            "bytes 0-18446744073709551615/0",
        ] {
            assert!(wrong(206, Some(part)), "{part}");
        }
        assert!(wrong(206, None));
        assert!(!wrong(206, Some("bytes 0-9/10")));
        assert!(!wrong(200, Some("bytes 0-4/10")));
    }

    /// It lies two I/O errors deep, where `source` does not lead.
    #[test]
    fn a_failed_handshake_is_tls_however_deep() {
        let tls = rustls::Error::General("no trust".to_owned());
        let error = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        assert_eq!(failure(&error), Failure::Tls);
        assert!(innermost(&error).contains("no trust"));
    }

    #[test]
    fn failures_are_told_apart() {
        let io = |kind: io::ErrorKind| failure(&io::Error::from(kind));
        assert_eq!(io(io::ErrorKind::TimedOut), Failure::Timeout);
        assert_eq!(io(io::ErrorKind::InvalidData), Failure::Malformed);
        assert_eq!(io(io::ErrorKind::ConnectionReset), Failure::Reset);
    }
}
