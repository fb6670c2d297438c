//! One attempt over HTTP: it sends the request and reads the answer, within a time and a size.
//!
//! Redirects are not followed here. Each hop is its own request with its own permit.

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use politely::attempts::{
    PartialContent, REPEATS_MAX, Unprocessed, failure_of, trouble_of, unprocessed,
};
use politely::coding::Codings;
use politely::core::fault::machine::Trouble;
use politely::core::signal::Failure;

use super::answer::{Answer, Came, Lost};
use super::body::{Enough, Intake, Sink, list_transfer_codings};
use super::call::{Body, Call};
use super::content;
use super::cookies::Cookies;
use super::egresses::WayFailed;
use super::http1::Http1Origins;
use super::proxy::ProxyError;
use super::reading::read_body;
use super::resolver::Resolver;
use super::unexpected::{TEXT_MAX, may_hide_block};
use super::ways::{BoxError, Head, Versions, Way};
use super::words::innermost;
use crate::config::Settings;
use crate::exit::Wrong;
use crate::fetch::report::save::Saving;
use crate::fetch::warc::{Exchange, SentHead};

/// The HTTP clients of a run: per egress one that keeps connections, and one that does not.
pub(crate) struct Clients {
    keeping: Vec<Way>,
    /// For runs over more hosts than there are descriptors for idle connections, and for repeated
    /// requests.
    fresh: Vec<Way>,
    /// For HTTP/1.1 only. It is made when the first origin requires it.
    http1: OnceLock<Vec<Way>>,
    pub(crate) http1_origins: Http1Origins,
    /// `None` with `--no-cookies`.
    cookies: Option<Cookies>,
    settings: Settings,
    resolver: Resolver,
    /// The maximum number of hosts for which connections are kept.
    keep_hosts_max: usize,
    has_proxies: bool,
    timeout: Duration,
    body_max: u64,
    /// Whether the beginning of each body is kept, for rules about answers.
    reads_bodies: bool,
}

/// The words for a proxy that answers 407 to a request.
const LOGIN: &str = "the proxy wants a valid login (407 Proxy Authentication Required), as in --proxy \
                     http://USER:PASSWORD@HOST";
/// The number of descriptors reserved for files and sockets that are not connections to hosts.
const DESCRIPTORS_APART: usize = 64;
/// The number of descriptors if the system does not report its limit: the usual limit.
const DESCRIPTORS_USUAL: usize = 1024;
/// Bytes of an unwanted body that are read to keep its connection.
const DISCARD_MAX: u64 = 64 * 1024;

impl Clients {
    /// Keeps the beginning of each body, for rules about answers.
    #[must_use]
    pub(crate) fn reading_bodies(mut self, reads_bodies: bool) -> Self {
        self.reads_bodies = reads_bodies;
        self
    }

    /// Returns the clients for `settings`. `per_host` is the maximum of requests in flight per
    /// host, and so of idle connections there.
    pub(crate) fn new(settings: &Settings, per_host: usize) -> Result<Self, Wrong> {
        let concurrency = settings.concurrency as usize;
        let idle_max = descriptors().saturating_sub(concurrency + DESCRIPTORS_APART);
        let resolver = Resolver::of_version(settings.connect.is_ipv6);
        Ok(Self {
            keeping: ways(settings, concurrency, Versions::All, &resolver)?,
            fresh: ways(settings, 0, Versions::All, &resolver)?,
            http1: OnceLock::new(),
            http1_origins: Http1Origins::default(),
            cookies: (settings.cookies).then(|| Cookies::new(settings.proxies.len())),
            settings: settings.clone(),
            resolver,
            keep_hosts_max: idle_max / per_host.clamp(1, concurrency),
            has_proxies: !settings.proxies.is_empty(),
            timeout: settings.timeout,
            body_max: settings.max_body,
            reads_bodies: false,
        })
    }

    /// Returns the resolver of names.
    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Returns the transport of `egress` in a run over `hosts` hosts.
    fn way(&self, egress: usize, hosts: usize) -> &Way {
        let by_egress = if hosts <= self.keep_hosts_max {
            &self.keeping
        } else {
            &self.fresh
        };
        &by_egress[egress % by_egress.len()]
    }

    /// Sends a request through `egress`, in a run over `hosts` hosts.
    ///
    /// # Errors
    /// The egress failed, and no request has reached the host.
    pub(crate) async fn call(
        &self,
        egress: usize,
        hosts: usize,
        call: Call<'_>,
    ) -> Result<Came, WayFailed> {
        let head_came = AtomicBool::new(false);
        let attempt = async {
            let began = Instant::now();
            let ended = (self.attempt(egress, hosts, call, began, &head_came)).await?;
            if let Came::Failed(Lost { is_http2: true, .. }) = &ended {
                // The head was fine, and the body was malformed.
                self.http1_origins.add(call.url);
                if call.may_repeat {
                    return (self.attempt(egress, hosts, call, began, &head_came)).await;
                }
            }
            Ok(ended)
        };
        let Ok(ended) = tokio::time::timeout(self.timeout, attempt).await else {
            let (failure, trouble) = if head_came.load(Ordering::Relaxed) {
                (Failure::CutOff, None)
            } else {
                (Failure::Timeout, Some(Trouble::Silent))
            };
            return Ok(Came::Failed(Lost {
                failure,
                words: format!("no whole answer within {:?}", self.timeout),
                trouble,
                is_http2: false,
            }));
        };
        ended
    }

    /// Sends the request. Repeats it at once over a fresh connection while the server does not
    /// process it.
    async fn send(
        &self,
        egress: usize,
        hosts: usize,
        call: Call<'_>,
        cookies: Option<HeaderValue>,
    ) -> Result<Head, BoxError> {
        let url = call.url;
        let mut way = if self.http1_origins.has(url) {
            self.http1(egress)?
        } else {
            self.way(egress, hosts)
        };
        let mut repeats = 0;
        loop {
            let lost = match way.call(call, cookies.clone()).await {
                Ok(response) => return Ok(response),
                Err(lost) => lost,
            };
            if repeats == REPEATS_MAX {
                return Err(lost.why);
            }
            repeats += 1;
            way = match lost.unprocessed {
                None => return Err(lost.why),
                Some(Unprocessed::Closed) if call.is_once || !call.may_repeat => {
                    return Err(lost.why);
                }
                Some(Unprocessed::Http1Required) => {
                    self.http1_origins.add(url);
                    if !call.may_repeat {
                        return Err(lost.why);
                    }
                    self.http1(egress)?
                }
                Some(_) if self.http1_origins.has(url) => self.http1(egress)?,
                Some(_) => &self.fresh[egress % self.fresh.len()],
            };
        }
    }

    /// Returns whether an answer with `status` is what was wanted.
    fn is_good(&self, status: StatusCode, body: Body<'_>) -> bool {
        match body {
            Body::Keep(_) | Body::Read(_) => status.is_success(),
            _ => self.settings.bounds.accepted.contains(status),
        }
    }

    /// Returns the transport of `egress` over HTTP/1.1.
    fn http1(&self, egress: usize) -> Result<&Way, BoxError> {
        let ways = if let Some(ways) = self.http1.get() {
            ways
        } else {
            let made = ways(&self.settings, 0, Versions::Http1, &self.resolver);
            let made = made.map_err(|why| why.0)?;
            self.http1.get_or_init(|| made)
        };
        Ok(&ways[egress % ways.len()])
    }

    /// Sends the request, and again without cookies if the server refuses them.
    async fn send_with_cookies(
        &self,
        egress: usize,
        hosts: usize,
        call: Call<'_>,
    ) -> Result<Head, BoxError> {
        let Some(cookies) = &self.cookies else {
            return self.send(egress, hosts, call, None).await;
        };
        let is_refusal = |head: &Head| matches!(head.answer.status().as_u16(), 400 | 431 | 494);
        let field = cookies.for_url(egress, call.url);
        let sent = self.send(egress, hosts, call, field.clone()).await;
        if let (Ok(answer), Some(field)) = (&sent, field)
            && is_refusal(answer)
            && call.may_repeat
            && cookies.may_be_refused(egress, call.url, &field)
        {
            // The host may have set more cookies than its servers accept.
            let without = self.send(egress, hosts, call, None).await;
            if let Ok(answer) = &without {
                cookies.tried_without(egress, call.url, &field, !is_refusal(answer));
            }
            return without;
        }
        sent
    }

    async fn attempt(
        &self,
        egress: usize,
        hosts: usize,
        call: Call<'_>,
        began: Instant,
        head_came: &AtomicBool,
    ) -> Result<Came, WayFailed> {
        let Call { url, body, .. } = call;
        let needs_start = call.needs_start || self.reads_bodies;
        let sent = match self.send_with_cookies(egress, hosts, call).await {
            Ok(sent) => sent,
            Err(error) => return failed(&*error),
        };
        head_came.store(true, Ordering::Relaxed);
        let wire = sent.wire(began);
        let (head, mut coming) = sent.answer.into_parts();
        // Only a proxy answers a request with this status.
        if head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED && self.has_proxies {
            return Err(WayFailed::whole(LOGIN.to_owned()));
        }
        if let Some(cookies) = &self.cookies {
            cookies.keep(egress, url, &head.headers);
        }
        let sent = head.extensions.get::<SentHead>();
        let exchange = sent.map(|sent| Exchange::of(sent.clone(), call, &head).into());
        let mut answer = Answer::begun(head, wire);
        answer.exchange = exchange;
        if *call.method == Method::HEAD {
            // Its fields describe a body that does not come.
            return Ok(Came::Answer(answer));
        }
        list_transfer_codings(&mut answer.headers);
        let codings = match Codings::of(&answer.headers) {
            Ok(codings) => codings,
            Err(unknown) => {
                // This is not an error yet: the status of an error page is enough, in any coding.
                answer.spoiled = Some(unknown.to_string());
                return Ok(Came::Answer(answer));
            }
        };
        if !codings.is_identity() {
            // These headers describe the encoded body.
            answer.headers.remove(CONTENT_ENCODING);
            answer.headers.remove(CONTENT_LENGTH);
        }
        answer.spoiled = unrequested_part(&answer, call);
        let fine = self.is_good(answer.status, body) && answer.spoiled.is_none();
        let is_counted = fine && matches!(body, Body::Count | Body::Save(..));
        if is_counted
            && codings.is_identity()
            && announced(&answer.headers).is_some_and(|length| length > self.body_max)
        {
            answer.spoiled = Some(too_long(self.body_max));
            return Ok(Came::Answer(answer));
        }
        let saving = match body {
            Body::Save(dir, request) if fine => {
                match Saving::begin(dir, url, &answer.headers, request) {
                    Ok(saving) => Some(saving),
                    Err(why) => return Ok(answer.unsaved(Enough::not_saved(&why), call.may_repeat)),
                }
            }
            _ => None,
        };
        let allowance = if fine {
            self.body_max
        } else {
            self.body_max.min(DISCARD_MAX)
        };
        let (bytes_max, start_max) = match body {
            Body::Keep(max) => (allowance.min(max as u64), max),
            Body::Read(max) if fine => (max, TEXT_MAX),
            _ if fine && !needs_start && !may_hide_block(&answer) => (allowance, 0),
            _ => (allowance, TEXT_MAX),
        };
        let path = saving.as_ref().map(|saving| saving.path().to_owned());
        let content = fine.then(|| content::of(call, &answer)).flatten();
        let sink = Sink::new(bytes_max, start_max, saving).with_content(content);
        let mut intake = Intake::new(&codings, sink);
        if let Some(lost) = read_body(&mut coming, &mut intake, fine, &mut answer).await {
            return lost;
        }
        answer.wire.total = began.elapsed();
        let sink = intake.sink();
        answer.bytes = sink.bytes;
        answer.start = std::mem::take(&mut sink.start).into();
        answer.content = sink.content.take();
        match sink.enough.take() {
            Some(Enough::TooLong) if is_counted => answer.spoiled = Some(too_long(bytes_max)),
            Some(Enough::TooLong) => {}
            None => answer.saved = path,
            Some(unsaved) => return Ok(answer.unsaved(unsaved, call.may_repeat)),
        }
        Ok(Came::Answer(answer))
    }
}

/// Returns the error of an answer that is a part which nobody requested.
fn unrequested_part(answer: &Answer, call: Call<'_>) -> Option<String> {
    let part = PartialContent::of(answer.status, &answer.headers)?;
    (!call.headers.contains_key(RANGE)).then(|| part.to_string())
}

/// Returns the length of a body that a head announces.
fn announced(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.trim().parse().ok()
}

/// Returns the transport of each egress, which keeps up to `keep` idle connections per host.
fn ways(
    settings: &Settings,
    keep: usize,
    versions: Versions,
    resolver: &Resolver,
) -> Result<Vec<Way>, Wrong> {
    if settings.proxies.is_empty() {
        return Ok(vec![Way::new(settings, None, keep, versions, resolver)?]);
    }
    let proxies = settings.proxies.iter();
    proxies
        .map(|proxy| Way::new(settings, Some(proxy), keep, versions, resolver))
        .collect()
}

/// Returns how many descriptors this process may have.
fn descriptors() -> usize {
    let soft = rlimit::Resource::NOFILE.get_soft();
    soft.map_or(DESCRIPTORS_USUAL, |soft| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}

pub(super) fn failed(error: &(dyn Error + 'static)) -> Result<Came, WayFailed> {
    let words = innermost(error);
    let (failure, trouble) = match ProxyError::find(error) {
        None => {
            let failure = failure_of(error).unwrap_or(Failure::Reset);
            (failure, trouble_of(error, failure))
        }
        // Whatever its cause, no request has reached the host.
        Some(ProxyError::HostUnreachable(_)) => (Failure::Connect, None),
        Some(failure) => {
            let may_be_host = matches!(failure, ProxyError::HostRefused(_));
            return Err(WayFailed { words, may_be_host });
        }
    };
    Ok(Came::Failed(Lost {
        failure,
        words,
        trouble,
        is_http2: unprocessed(error) == Some(Unprocessed::Http1Required),
    }))
}

fn too_long(bytes_max: u64) -> String {
    format!("body exceeds {bytes_max} bytes (--max-body)")
}
