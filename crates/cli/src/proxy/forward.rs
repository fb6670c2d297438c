//! One request, from the caller to the host and back.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use politely::attempts::Waited;
use politely::layer::PoliteService;
use politely::{Limiter, UnitName};
use tower::ServiceExt as _;

use super::access::Access;
use super::body::{self, Answer, Kept, Sent};
use super::guard::Guard;
use super::problem::Problem;
use super::tunnel::{self, Upload};
use super::upstream::{Hop, Upstream};
use super::way::{Kind, Routes, Way, kind_of};
use super::{hops, links, wishes};

/// The proxy, for all connections.
pub(super) struct Proxy {
    pub(super) access: Access,
    pub(super) routes: Routes,
    pub(super) guard: Guard,
    pub(super) service: PoliteService<Upstream, Kept>,
    pub(super) limiter: Limiter,
    /// The operator's longest wait.
    pub(super) wait_max: Option<Duration>,
    /// Whether answers say how long their requests waited.
    pub(super) tells_waits: bool,
}

impl Proxy {
    /// Answers a request that came to the address `own`.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        own: SocketAddr,
    ) -> Response<Answer> {
        let kind = kind_of(&request, own);
        let may_close = request.version() < Version::HTTP_2;
        let answer = self.forward(request, kind).await;
        let mut response = answer.unwrap_or_else(Problem::into_response);
        if kind == Kind::Tunnel && may_close && !response.status().is_success() {
            // The caller may have sent the bytes of the tunnel already. They are no requests.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let waited = response.extensions_mut().remove::<Waited>();
        if let Some(waited) = waited.filter(|_| self.tells_waits) {
            tell(&waited, response.headers_mut());
        }
        response
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        kind: Kind,
    ) -> Result<Response<Answer>, Problem> {
        self.access.check(&request, kind).await?;
        hops::check_request(&request, kind)?;
        if *request.method() == Method::OPTIONS && request.uri().path() == "*" {
            return Ok(no_content());
        }
        let way = self.routes.way(&request, kind)?;
        let (terms, labels) = wishes::take(request.headers_mut(), self.wait_max, |unit| {
            self.has_unit(unit)
        })?;
        if hops::is_last_hop(&mut request) {
            return last_hop(request.method());
        }
        self.check_address(&way).await?;
        let upgrades = hops::wants_websocket(&request);
        let expects = hops::expects_continue(&request);
        let switches = upgrades || kind == Kind::Tunnel;
        let caller = switches.then(|| hyper::upgrade::on(&mut request));
        hops::pass_request(&mut request, upgrades, expects);
        *request.uri_mut() = way.uri.clone();
        request.extensions_mut().clear();
        let mut request = match kind {
            Kind::Tunnel => request.map(|_| Sent::Kept(None, None)),
            Kind::Gateway | Kind::Forward => Sent::of(request, expects).await?,
        };
        let hop = Hop {
            is_guarded: way.is_guarded,
            is_http1: upgrades || expects,
        };
        let extensions = request.extensions_mut();
        extensions.insert(hop);
        extensions.insert(terms);
        extensions.insert(labels);
        let stream = match request.body() {
            Sent::Stream(stream) => Some(stream.clone()),
            Sent::Kept(..) => None,
        };
        let leaves = async {
            match stream {
                Some(stream) => stream.breaks_off().await,
                None => pending().await,
            }
        };
        let sent = tokio::select! {
            sent = self.service.clone().oneshot(request) => sent,
            gone = leaves => return Err(Problem::of(&gone.into())),
        };
        let mut response = sent.map_err(|error| Problem::of(&error))?;
        hops::check_response(&mut response, upgrades).map_err(Problem::of_host)?;
        let upload = response.extensions_mut().remove::<Upload>();
        if let (Some(caller), Some(upload)) = (&caller, upload) {
            let (head, body) = response.into_parts();
            tokio::spawn(tunnel::pass(caller.clone(), upload, body));
            return Ok(Response::from_parts(head, body::whole("")));
        }
        if let Some(caller) = caller
            && response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            let host = hyper::upgrade::on(&mut response);
            tokio::spawn(tunnel::join(caller, host));
        }
        hops::pass_response(&mut response, kind == Kind::Forward);
        links::lead_back(response.headers_mut(), &way.uri, &way.back);
        Ok(response.map(BodyExt::boxed_unsync))
    }

    /// Returns whether a request may state a cost in `unit`. Others may have rules of their own.
    fn has_unit(&self, unit: UnitName) -> bool {
        if self.limiter.is_shared() {
            return true;
        }
        let book = self.limiter.policy().unwrap_or_default();
        let limits = format!("1 {unit}/min").parse();
        limits.is_ok_and(|limits| book.check_units(&limits).is_ok())
    }

    /// Refuses a private address before a permit is taken. The connection is checked as well.
    async fn check_address(&self, way: &Way) -> Result<(), Problem> {
        if !way.is_guarded {
            return Ok(());
        }
        match self
            .guard
            .addresses(way.uri.host().unwrap_or_default())
            .await
        {
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                Err(Problem::forbidden(&why.to_string()))
            }
            // Another error is for the layer, which tries again.
            _ => Ok(()),
        }
    }
}

/// Answers a request whose Max-Forwards is spent.
fn last_hop(method: &Method) -> Result<Response<Answer>, Problem> {
    if method == Method::TRACE {
        let detail = "this proxy does not echo requests";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    }
    Ok(no_content())
}

fn no_content() -> Response<Answer> {
    let mut response = Response::new(body::whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Writes how long a request waited.
fn tell(waited: &Waited, headers: &mut HeaderMap) {
    headers.insert(
        "politely-wait-ms",
        (waited.length.as_millis() as u64).into(),
    );
    let mut put = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    put("politely-key", waited.key.as_str());
    if let Some(reason) = &waited.reason {
        put("politely-reason", reason);
    }
}
