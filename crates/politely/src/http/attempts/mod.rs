//! The sending of a request with all its attempts, for every client integration.
//!
//! The tower layer and the reqwest middleware differ in the type of a request and in the way of
//! sending it. The steps around sending are here, once. Each attempt:
//!
//! 1. waits for a permit of all the request's keys ([`Limiter::acquire`]),
//! 2. is sent, and timed by the limiter's clock up to the response's head,
//! 3. is classified. If a block page is possible, the beginning of its body is read too; the caller
//!    still reads the body from the start,
//! 4. is reported at once, so that the next request uses the outcome. The in-flight slot stays
//!    taken until the body has arrived or is dropped, because servers count a request until it has
//!    ended,
//! 5. is judged by the [`Policy`]. A refused request goes back to its key's queue, and a failed one
//!    waits for its backoff. If another attempt is hopeless, the caller gets the response or error
//!    unchanged. If a request's URL alone fails, while others of its key are served, the request
//!    waits by itself, delays no other, and spends its attempts. An outage of the host spends none;
//!    it is bounded by [`Policy::give_up_after`].
//!
//! # Requests that are sent again
//! The policy decides. By default it allows GET, HEAD, OPTIONS and TRACE that were refused or
//! failed temporarily. Its caps and the retry budgets of the key and of all attempts limit their
//! number. If permits come from a coordinator, the coordinator is consulted too: it may give up
//! earlier, by the fleet's budgets, and it sets the delay. A request whose body cannot be copied is
//! sent once. Permanent failures (no such host, bad TLS) are returned at once.
//!
//! While this machine's own network fails ([`politely_core::fault`]), requests wait, and one every
//! few seconds is a probe. No host learns from such failures, and no attempt is spent.
//!
//! # Requests that are repeated at once
//! A request that the server did not process is no attempt and no evidence. It is repeated on the
//! same permit, and nothing is reported. This covers `REFUSED_STREAM` and a GOAWAY that excludes
//! its stream. It also covers a connection that closes before a response, if its origin answered
//! the last request. A kept connection becomes stale in that way. There are at most [`REPEATS_MAX`]
//! repeats, of idempotent methods, if the body can be copied. After that it is a failure.
//!
//! Only the inner client can choose HTTP/1.1, so after `HTTP_1_1_REQUIRED` the caller gets the
//! error. It counts as a fault of the URL. The clients of [`mod@crate::middleware`] continue with
//! HTTP/1.1 by themselves.
//!
//! # Redirects that name a wait
//! The Retry-After of a redirect is for its target (RFC 9110, section 10.2.3). A request for that
//! target waits as long, through these attempts and their clones. Up to 1,024 targets are
//! remembered.
//!
//! # Usage of language models
//! A request whose estimated cost has tokens is settled by the usage in its answer, while the body
//! passes ([`UsageReader`](politely_core::signal::UsageReader)). If a coordinator has the rules,
//! this is done for each POST. Of a body that is dropped, what is known counts. A usage that is
//! missing, or in a content coding, leaves the estimate.
//!
//! # Parts
//! A 206 response to a request without a Range header is a [`PartialContent`] error, unless the
//! part is the whole.
//!
//! # Cancellation
//! Dropping the call's future is safe at every point. In the queue, the request leaves the queue
//! and no permit is taken. In flight, its slots are freed and its tokens stay spent, since the
//! request may have arrived. In a backoff, it holds nothing.
//!
//! # Fairness
//! Every attempt joins the end of its key's queue, a retry like a first attempt. No request
//! overtakes another.
//!
//! # Deadlock with unread responses
//! A response that is kept unread keeps its slot. A caller that holds as many responses as the
//! key's in-flight cap, and then requests the same key again, waits until a lease ends. Read or
//! drop the responses first.

mod asked;
mod body;
mod exchange;
mod failure;
mod heard;
mod origins;
mod partial;
mod repeats;
mod targets;
mod terms;
mod trouble;
mod usage;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::RANGE;
use http::{HeaderMap, Method, Response};
use politely_core::fault::Failures;
use politely_core::host::{AcquireRequest, Directions};
use politely_core::key::{Key, KeyError};
use politely_core::retry::{Attempt, BudgetRule, Next, Policy};
use politely_core::signal::{Classifier, Report, Resource, Signal};
use tracing::Instrument;
use tracing::field::Empty;
use url::Url;

use crate::backend::operations::{Head, Later};
use crate::http::redirect::target;
use crate::labels::Labels;
use crate::leases::{Decision, Judged};
use crate::limiter::{Limiter, Plan, RequestView};
use crate::own_machine::OwnMachine;
use crate::permit::Permit;
use crate::retries::Retries;
use crate::sync::sleep;

pub use asked::{Asked, NotSent};
pub use body::PacedBody;
pub(crate) use exchange::{Ended, Exchange};
pub use failure::{Unprocessed, failure_of, unprocessed};
use heard::{Heard, Sent, Unreported};
pub use origins::Origins;
pub use partial::PartialContent;
pub use repeats::REPEATS_MAX;
use targets::Targets;
use terms::Waiting;
pub use terms::{Terms, Waited};
pub use trouble::trouble_of;
use usage::expect_body;

/// The way of sending requests: the limiter, the keys and the number of attempts. Clones are cheap
/// and share the limiter and the retry budgets.
#[derive(Clone)]
pub struct Attempts {
    limiter: Limiter,
    policy: Arc<Policy>,
    classifier: Classifier,
    keys: Arc<KeysOf>,
    and_keys: Vec<Key>,
    retries: Arc<Retries>,
    /// The origins that answered lately. Only these may have left a stale connection behind.
    answered: Arc<Origins>,
    targets: Arc<Targets>,
    own_machine: Arc<OwnMachine>,
}

/// Where a request goes, and for whom.
#[derive(Clone, Copy)]
struct Origin<'a> {
    url: &'a Url,
    keys: &'a [Key],
    labels: Option<&'a Labels>,
}

type KeysOf = dyn Fn(&Asked<'_>) -> Result<Vec<Key>, KeyError> + Send + Sync;

impl Attempts {
    /// Creates attempts under `limiter`. Each request has the key of its host. The defaults are
    /// [`Policy`], [`Classifier`], [`BudgetRule::PER_KEY`] and [`BudgetRule::GLOBAL`].
    pub fn new(limiter: Limiter) -> Self {
        let retries = Retries::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, limiter.now());
        Self {
            limiter,
            policy: Arc::default(),
            classifier: Classifier::default(),
            keys: Arc::new(|asked| Ok(vec![Key::of_url(asked.url)?])),
            and_keys: Vec::new(),
            retries: Arc::new(retries),
            answered: Arc::default(),
            targets: Arc::default(),
            own_machine: Arc::default(),
        }
    }

    /// Sets which requests are sent again, when, and how often. Default [`Policy::crawler`].
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// Sets the meaning of outcomes. With a soft-block hook, every response waits for the first 16
    /// KiB of its body, or for the whole body if that is shorter. Default: the table of
    /// [`mod@politely_core::signal`] and no hook.
    #[must_use]
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = classifier;
        self
    }

    /// Sets the keys of each request. The first key learns from the outcome; the others are only
    /// limits to keep. Default: the request's host.
    #[must_use]
    pub fn keys_by(
        mut self,
        keys: impl Fn(&Asked<'_>) -> Result<Vec<Key>, KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.keys = Arc::new(keys);
        self
    }

    /// Limits every request by `key` too, after its own keys: for example a limit of the whole
    /// process or of an account.
    #[must_use]
    pub fn and_key(mut self, key: Key) -> Self {
        self.and_keys.push(key);
        self
    }

    /// Sets the retry budgets of each request's first key and of all requests together. Both start
    /// full. Defaults: [`BudgetRule::PER_KEY`] and [`BudgetRule::GLOBAL`]. A key costs 64 bytes
    /// while its budget is not full, and all keys cost at most 4 MB.
    #[must_use]
    pub fn budgets(mut self, per_key: BudgetRule, global: BudgetRule) -> Self {
        self.retries = Arc::new(Retries::new(per_key, global, self.limiter.now()));
        self
    }

    /// Returns the limiter.
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Sends `request` until it is served, hopeless or given up.
    pub(crate) async fn run<X: Exchange>(
        &self,
        exchange: &mut X,
        request: X::Request,
    ) -> Result<Response<PacedBody<X::Body>>, Ended<X::Error>> {
        let url = X::url(&request).map_err(NotSent::from)?.into_owned();
        let keys = self.keys_of::<X>(&request, &url).map_err(NotSent::from)?;
        let labels = exchange.extensions(&request).get::<Labels>().cloned();
        let terms = exchange.extensions(&request).get::<Terms>().cloned();
        let origin = Origin {
            url: &url,
            keys: &keys,
            labels: labels.as_ref(),
        };
        let mut waiting = Waiting::new(&self.limiter, terms.as_ref(), &keys[0]);
        let sending = self.until_served(exchange, request, origin, &mut waiting);
        let mut response = sending.await?;
        if let Some(waited) = waiting.into_waited() {
            response.extensions_mut().insert(waited);
        }
        Ok(response)
    }

    async fn until_served<X: Exchange>(
        &self,
        exchange: &mut X,
        mut request: X::Request,
        origin: Origin<'_>,
        waiting: &mut Waiting<'_>,
    ) -> Result<Response<PacedBody<X::Body>>, Ended<X::Error>> {
        let Origin { url, keys, labels } = origin;
        let mut plan = self.plan_of(keys, url, X::method(&request), labels)?;
        let key = &plan.key().clone();
        let wants_part = X::headers(&request).contains_key(RANGE);
        let page = Resource::of(url.as_str());
        let rest = self.targets.rest(page, self.limiter.now());
        if !rest.is_zero() {
            waiting.during(&plan, sleep(rest)).await?;
        }
        let mut attempt = Attempt::first(X::method(&request).clone());
        loop {
            let asked = self.limiter.now();
            let ask = waiting.ask(&plan);
            let estimates = ask.units.clone();
            let mut permit = self.permit(&plan, ask, &attempt, origin, waiting).await?;
            let reads_usage = expect_body::<X>(&mut request, &plan, &permit, &estimates);
            exchange.ready().await.map_err(Ended::Failed)?;
            // A body may become repeatable during the wait.
            let copy = self.copy_of::<X>(&request, &plan);
            let sent = self.limiter.now();
            let span = request_span(key, &attempt, sent.since(asked));
            permit.sent();
            let mut judge = permit.judge(&attempt, copy.is_some());
            // A connection that closed may have delivered the request.
            let spare = copy.as_ref().filter(|_| attempt.method.is_idempotent());
            let spare = spare.and_then(X::copy);
            let sending = self.send(exchange, request, spare, sent);
            let sending = sending.instrument(span.clone());
            let (result, sent) = permit.during(sending).await;
            let latency = self.limiter.now().since(sent);
            let ended = Sent {
                permit,
                latency,
                plan: &plan,
                url,
                wants_part,
                reads_usage,
            };
            let heard = self.hear::<X>(result, ended).instrument(span.clone());
            let Heard {
                mut report,
                directions,
                came,
                is_shown,
            } = match heard.await {
                Ok(heard) => heard,
                Err(Unreported::NotSent(error)) => return Err(Ended::Failed(error)),
                Err(Unreported::OwnFault(error)) => {
                    request = copy.ok_or(Ended::Failed(error))?;
                    continue;
                }
            };
            let mut decided = None;
            if is_shown {
                // A rule of the coordinator may give the answer another meaning.
                decided = self.decided(judge.take(), key).await;
                let meaning = decided.as_ref().and_then(|decided| decided.signal);
                report.signal = meaning.unwrap_or(report.signal);
            }
            span.record("status", report.status);
            span.record("signal", tracing::field::debug(report.signal));
            drop(span);
            let own = attempt.failures.own;
            let mut resent = attempt.as_resent(plan.resends(&attempt.method), &report);
            let again = self.again(&mut resent, &report, &directions, &plan, copy);
            attempt.failures = resent.failures;
            let Some((after, copy)) = again else {
                return came;
            };
            let decided = match decided {
                None => self.decided(judge, key).await,
                decided => decided,
            };
            let after = match decided.and_then(|decided| decided.next) {
                None => after,
                Some(Judged::Retry { after, is_charged }) => {
                    attempt.failures = Failures::counted(own + u32::from(is_charged));
                    after
                }
                Some(Judged::GiveUp(_)) => return came,
            };
            let opens = (self.limiter.now() + after).max(directions.hold_until);
            if !waiting.reaches(opens) {
                return came;
            }
            // Frees the slot together with the response, before the request waits again.
            drop(came);
            if !after.is_zero() {
                waiting.during(&plan, sleep(after)).await?;
            }
            attempt = attempt.following(&report, after);
            request = copy;
            // A part of the host may be held since then.
            plan = self.plan_of(keys, url, X::method(&request), labels)?;
        }
    }

    /// Waits for a permit of the keys of `plan`.
    async fn permit(
        &self,
        plan: &Plan,
        ask: AcquireRequest,
        attempt: &Attempt,
        origin: Origin<'_>,
        waiting: &mut Waiting<'_>,
    ) -> Result<Permit, NotSent> {
        let Origin { url, labels, .. } = origin;
        let consumer = labels.and_then(|labels| labels.get(Labels::CLIENT));
        let head = Head {
            method: &attempt.method,
            url,
            labels,
            priority: waiting.priority(),
        };
        let permit = async {
            self.until_machine_works(plan.key()).await;
            let consumer = consumer.unwrap_or_default();
            self.limiter
                .acquire_planned(plan, ask, head, consumer)
                .await
        };
        Ok(waiting.during(plan, permit).await??)
    }

    /// Waits while this machine's network is at fault, as far as that concerns the host of `key`.
    async fn until_machine_works(&self, key: &Key) {
        loop {
            let now = self.limiter.now();
            let Err(probe) = self.own_machine.may_send(now, key) else {
                return;
            };
            sleep(probe.since(now)).await;
        }
    }

    /// Returns what the policy and known parts of the host say about a request for `keys`.
    fn plan_of(
        &self,
        keys: &[Key],
        url: &Url,
        method: &Method,
        labels: Option<&Labels>,
    ) -> Result<Plan, NotSent> {
        let plan = self.limiter.plan(RequestView {
            keys: keys.to_vec(),
            url: Some(url),
            method,
            labels: &|name| labels?.get(name),
        });
        plan.map_err(|missing| NotSent::Acquire(missing.into()))
    }

    /// Delays the target of a redirect that named a wait.
    fn delay_target(&self, report: &Report, headers: &HeaderMap, from: &Url) {
        if let Some(after) = report.target_after
            && let Ok(to) = target(headers, from)
        {
            let now = self.limiter.now();
            let to = Resource::of(to.as_str());
            self.targets.delay(to, now + after, now);
        }
    }

    fn copy_of<X: Exchange>(&self, request: &X::Request, plan: &Plan) -> Option<X::Request> {
        let method = X::method(request);
        let repeatable =
            self.policy.methods.contains(method) || method.is_idempotent() || plan.resends(method);
        repeatable.then(|| X::copy(request)).flatten()
    }

    fn keys_of<X: Exchange>(&self, request: &X::Request, url: &Url) -> Result<Vec<Key>, KeyError> {
        let mut keys = (self.keys)(&Asked {
            method: X::method(request),
            url,
            headers: X::headers(request),
        })?;
        keys.extend_from_slice(&self.and_keys);
        // If a key were named twice, the request would wait for its own slot.
        let mut once = Vec::with_capacity(keys.len());
        for key in keys {
            if !once.contains(&key) {
                once.push(key);
            }
        }
        Ok(once)
    }

    /// Returns the delay and the request of the next attempt, or `None` if there is none. A request
    /// that failed and cannot be sent again costs no budget.
    fn again<R>(
        &self,
        attempt: &mut Attempt,
        report: &Report,
        directions: &Directions,
        plan: &Plan,
        copy: Option<R>,
    ) -> Option<(Duration, R)> {
        if report.signal != Signal::Ok && copy.is_none() {
            return None;
        }
        let now = self.limiter.now();
        let (key, policy) = (plan.key(), plan.retry_policy(&self.policy));
        match (self.retries).decide(&policy, attempt, report, directions, key, now) {
            Next::Retry { after, .. } => Some((after, copy?)),
            Next::GiveUp(reason) => {
                tracing::debug!(%key, attempt = attempt.number, %reason, "given up");
                None
            }
            Next::Done => None,
        }
    }

    /// Returns the coordinator's decision, if there is a coordinator and it answers. Its decision
    /// counts: it knows the fleet's budgets and the host's state, and this process does not.
    async fn decided(
        &self,
        judge: Option<Later<'static, Option<Decision>>>,
        key: &Key,
    ) -> Option<Decision> {
        let decided = judge?.await?;
        if let Some(Judged::GiveUp(reason)) = &decided.next {
            tracing::debug!(%key, %reason, "given up, says the coordinator");
        }
        Some(decided)
    }
}

impl From<Limiter> for Attempts {
    fn from(limiter: Limiter) -> Self {
        Self::new(limiter)
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts")
            .field("policy", &self.policy)
            .field("and_keys", &self.and_keys)
            .finish_non_exhaustive()
    }
}

/// Returns the span of a request that waited for its permit.
fn request_span(key: &Key, attempt: &Attempt, waited: Duration) -> tracing::Span {
    tracing::debug_span!(
        "politely.request",
        key = %key,
        attempt = attempt.number,
        waited_ms = waited.as_millis() as u64,
        status = Empty,
        signal = Empty,
    )
}
