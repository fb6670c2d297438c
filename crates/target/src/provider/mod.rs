//! A provider of an API with declared limits: it counts requests and named units as such providers
//! do, states its quotas in headers, and refuses what exceeds them.
//!
//! Windows are exact: a limit counts everything that arrived in the window before now. A request is
//! refused if its cost does not fit. Tokens are known only afterwards, so a request is served while
//! any are left, and its whole use counts from its arrival.
//!
//! `POST …/chat/completions` and `POST …/messages` answer as the APIs of language models do. The
//! prompt costs a token per four bytes of the body, and the completion costs `max_tokens`.

#![expect(
    clippy::disallowed_methods,
    reason = "a server is where time enters and where waiting is done"
)]

mod headers;
mod meter;
mod model;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimits, UnitCosts};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use meter::Meter;

use crate::server::listen;

/// The largest body of a request.
const BODY_MAX: usize = 1 << 20;
/// The time in which a request is served.
const SERVICE: Duration = Duration::from_millis(20);

/// The headers in which a provider states its quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// None; a refusal has a Retry-After.
    #[default]
    None,
    /// `x-ratelimit-limit`, `-remaining`, `-reset` of the tightest limit of requests.
    XRateLimit,
    /// The same without `x-`.
    RateLimit,
    /// `x-ratelimit-limit-requests`, `x-ratelimit-limit-tokens` and so on.
    OpenAi,
    /// `anthropic-ratelimit-requests-limit` and so on.
    Anthropic,
}

/// The limits that a request falls under.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge {
    /// Requests with the same account share its limits.
    pub account: String,
    /// The limits of the account.
    pub limits: DeclaredLimits,
    /// The tokens of the rate that the request costs.
    pub requests: u64,
    /// The named units that the request costs.
    pub units: UnitCosts,
}

/// Returns what a request of a method and a path costs. `None` means that it is free.
pub type ChargeOf = dyn Fn(&Method, &str) -> Option<Charge> + Send + Sync;

/// A provider to play.
pub struct ProviderSpec {
    /// Its name, for the report.
    pub name: String,
    /// The headers in which it states its quotas.
    pub dialect: Dialect,
    /// The costs of its requests.
    pub charge_of: Box<ChargeOf>,
}

/// What a provider saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProviderReport {
    /// Its name.
    pub provider: String,
    /// Requests that were served.
    pub served: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The accounts, by name.
    pub accounts: BTreeMap<String, Vec<LimitReport>>,
}

/// What one limit saw.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// The limit.
    pub limit: String,
    /// Its quantity.
    pub quantity: u64,
    /// The amount of its unit that was served.
    pub used: u64,
    /// The largest amount in any window. Above the quantity, the clients exceeded the limit.
    pub peak: u64,
}

struct Host {
    spec: ProviderSpec,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<String, Meter>,
    served: u64,
    refused: u64,
}

/// A running provider. Dropping it stops it.
pub struct Provider {
    host: Arc<Host>,
    address: SocketAddr,
    _listener: JoinSet<()>,
}

impl Provider {
    /// Starts the provider.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(spec: ProviderSpec, bind: Ipv4Addr, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((bind, port)).await?;
        let address = listener.local_addr()?;
        let host = Arc::new(Host {
            spec,
            began: Instant::now(),
            state: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let answer = |host: Arc<Host>, request| async move {
            Ok::<_, hyper::Error>(host.answer(request).await)
        };
        tasks.spawn(listen(listener, Arc::clone(&host), answer));
        Ok(Self {
            host,
            address,
            _listener: tasks,
        })
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns what it saw so far.
    pub fn report(&self) -> ProviderReport {
        let state = self.host.state.lock();
        let accounts = state.accounts.iter();
        ProviderReport {
            provider: self.host.spec.name.clone(),
            served: state.served,
            refused: state.refused,
            accounts: accounts
                .map(|(name, meter)| (name.clone(), meter.report()))
                .collect(),
        }
    }
}

impl Host {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    async fn answer(&self, request: http::Request<Incoming>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
        let body = body.map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes);
        let Some(charge) = (self.spec.charge_of)(&method, &path) else {
            return respond(StatusCode::OK, "{\"ok\": true}".to_owned());
        };
        let use_of_model = model::use_of(&method, &path, &body);
        let costs = use_of_model.as_ref().map(model::Use::costs);
        let costs = costs.unwrap_or_else(|| charge.units.clone());
        let now = self.now();
        let refused = {
            let mut state = self.state.lock();
            let meter = state.accounts.entry(charge.account.clone());
            let meter = meter.or_insert_with(|| Meter::new(&charge.limits));
            let is_known = use_of_model.is_none();
            let refused = meter.take(now, charge.requests, &costs, is_known).err();
            match refused {
                None => state.served += 1,
                Some(_) => state.refused += 1,
            }
            refused
        };
        let mut response = if let Some(wait) = refused {
            let text = "{\"error\": {\"type\": \"rate_limit_error\", \"message\": \"slow down\"}}";
            let mut response = respond(StatusCode::TOO_MANY_REQUESTS, text.to_owned());
            let secs = wait.as_micros().div_ceil(1_000_000) as u64;
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, secs.into());
            response
        } else {
            tokio::time::sleep(SERVICE).await;
            let text = use_of_model.map_or_else(|| "{\"ok\": true}".to_owned(), |used| used.body());
            respond(StatusCode::OK, text)
        };
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(meter) = state.accounts.get_mut(&charge.account) {
            if refused.is_none() {
                meter.leave();
            }
            headers::announce(
                response.headers_mut(),
                self.spec.dialect,
                &meter.quotas(now),
            );
        }
        response
    }
}

fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

impl fmt::Display for ProviderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            provider,
            served,
            refused,
            ..
        } = self;
        writeln!(f, "{provider}: {served} served, {refused} refused")?;
        for (account, limits) in &self.accounts {
            for limit in limits {
                let LimitReport {
                    limit, used, peak, ..
                } = limit;
                writeln!(f, "  {account:24} {limit:28} used {used}, peak {peak}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSpec")
            .field("name", &self.name)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
