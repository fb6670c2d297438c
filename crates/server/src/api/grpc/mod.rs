//! The gRPC service `urlfrontier.URLFrontier`, for crawlers that speak `URLFrontier`'s protocol.
//!
//! | file | its part |
//! | --- | --- |
//! | `messages.rs` | the messages |
//! | `put.rs` | `PutURLs` and `PutDiscovered` |
//! | `get.rs` | `GetURLs` |
//! | `look.rs` | the calls that only read |
//! | `walk.rs` | all pages of a queue or of a crawl, as a stream |
//! | `orders.rs` | the calls of an operator |
//!
//! The calls pass the same checks as the HTTP calls. The protocol has no tokens and no outcomes: a
//! page that comes back as known was visited, and leaves the unit that has it.

mod get;
mod look;
mod messages;
mod orders;
mod put;
mod walk;

use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::post;
use futures_util::Stream;
use politely_frontier::{CrawlName, FrontierError};
use prost::Message;
use tonic::server::Grpc;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use self::messages::{Empty, Local, StringList};
use super::Api;
use super::access::Caller;
use crate::frontier::{FrontierService, crawl_name};
use crate::tokens::Role;

/// The prefix of the paths of the calls.
pub(super) const PREFIX: &str = "/urlfrontier.URLFrontier/";
/// The crawl of a call that names none.
const DEFAULT_CRAWL: &str = "DEFAULT";

/// The calls that only read, and the calls of a worker. The others are an operator's.
const READ_CALLS: [&str; 8] = [
    "ListNodes",
    "ListCrawls",
    "ListQueues",
    "GetStats",
    "GetActive",
    "GetURLStatus",
    "ListURLs",
    "CountURLs",
];
const WORKER_CALLS: [&str; 3] = ["GetURLs", "PutURLs", "PutDiscovered"];

/// Returns the role that a call needs.
pub(super) fn role(call: &str) -> Role {
    if READ_CALLS.contains(&call) {
        Role::Read
    } else if WORKER_CALLS.contains(&call) {
        Role::Worker
    } else {
        Role::Operator
    }
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/urlfrontier.URLFrontier/{call}", post(call))
}

/// The calls of one caller.
#[derive(Clone)]
struct Calls {
    api: Api,
    frontier: FrontierService,
    caller: Caller,
}

/// The result of a call with one answer.
type Answer<T> = Result<T, Status>;

async fn call(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let Some(frontier) = api.frontier.clone() else {
        let detail = "this coordinator has no frontier; start it with --frontier DIR";
        return refuse(&Status::unimplemented(detail));
    };
    let calls = Calls {
        api,
        frontier,
        caller,
    };
    match name.as_str() {
        "ListNodes" => unary(request, |_: Empty| ready(Ok(calls.nodes()))).await,
        "ListCrawls" => unary(request, |_: Local| calls.crawls()).await,
        "SetActive" => unary(request, |said| ready(Ok(calls.set_active(&said)))).await,
        "GetActive" => unary(request, |_: Local| ready(Ok(calls.is_active()))).await,
        "DeleteCrawl" => unary(request, |said| calls.delete_crawl(said)).await,
        "DeleteQueue" => unary(request, |said| calls.delete_queue(said)).await,
        "BlockQueueUntil" => unary(request, |said| calls.block(said)).await,
        "SetDelay" => unary(request, |said| calls.delay(said)).await,
        "ListQueues" => unary(request, |said| calls.queues(said)).await,
        "GetStats" => unary(request, |said| calls.stats(said)).await,
        "GetURLStatus" => unary(request, |said| calls.url_status(said)).await,
        "CountURLs" => unary(request, |said| calls.count(said)).await,
        "GetURLs" => streamed(request, |said| calls.get(said)).await,
        "ListURLs" => streamed(request, |said| calls.urls(said)).await,
        "PutURLs" => streaming(request, |items| put::items(calls, items)).await,
        "PutDiscovered" => streaming(request, |items| put::batches(calls, items)).await,
        "SetLogLevel" => unary(request, |said| ready(calls.set_log_level(&said))).await,
        "SetCrawlLimit" => unary(request, |said| calls.limit(said)).await,
        "PurgeURLs" => unary(request, |said| calls.forget(said)).await,
        other => refuse(&Status::unimplemented(format!("there is no call {other}"))),
    }
}

impl Calls {
    fn nodes(&self) -> StringList {
        let name = self.api.coordinator.folder().map_or_else(
            || "politely".to_owned(),
            |folder| folder.display().to_string(),
        );
        StringList { values: vec![name] }
    }

    async fn crawls(self) -> Answer<StringList> {
        let crawls = self.frontier.crawls().await.map_err(status)?.crawls;
        Ok(StringList {
            values: crawls.into_iter().map(|crawl| crawl.crawl).collect(),
        })
    }
}

/// Answers a call with one message.
async fn unary<M, A, F>(request: Request, answer: impl FnOnce(M) -> F) -> Response
where
    M: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Answer<A>>,
{
    let mut answer = Some(answer);
    let service = service_fn(|said: tonic::Request<M>| {
        let answered = answer.take().map(|answer| answer(said.into_inner()));
        async { Ok(tonic::Response::new(answered.ok_or_else(twice)?.await?)) }
    });
    let mut grpc = Grpc::new(ProstCodec::<A, M>::default());
    grpc.unary(service, request).await.map(Body::new)
}

/// Answers a call with a stream of messages.
async fn streamed<M, A, F, S>(request: Request, answer: impl FnOnce(M) -> F) -> Response
where
    M: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Answer<S>>,
    S: Stream<Item = Answer<A>> + Send + 'static,
{
    let mut answer = Some(answer);
    let service = service_fn(|said: tonic::Request<M>| {
        let answered = answer.take().map(|answer| answer(said.into_inner()));
        async { Ok(tonic::Response::new(answered.ok_or_else(twice)?.await?)) }
    });
    let mut grpc = Grpc::new(ProstCodec::<A, M>::default());
    grpc.server_streaming(service, request).await.map(Body::new)
}

/// Answers a stream of messages with a stream of messages.
async fn streaming<M, A, S>(
    request: Request,
    answer: impl FnOnce(Streaming<M>) -> S + Send,
) -> Response
where
    M: Message + Default + 'static,
    A: Message + Default + 'static,
    S: Stream<Item = Answer<A>> + Send + 'static,
{
    let mut answer = Some(answer);
    let service = service_fn(|said: tonic::Request<Streaming<M>>| {
        let answered = answer.take().map(|answer| answer(said.into_inner()));
        ready(answered.map(tonic::Response::new).ok_or_else(twice))
    });
    let mut grpc = Grpc::new(ProstCodec::<A, M>::default());
    grpc.streaming(service, request).await.map(Body::new)
}

fn twice() -> Status {
    Status::internal("a call was answered twice")
}

/// Refuses a call before its messages are read.
fn refuse(why: &Status) -> Response {
    why.clone().into_http::<tonic::body::Body>().map(Body::new)
}

/// Returns the crawl that a message names.
fn named(text: &str) -> Answer<CrawlName> {
    let text = if text.is_empty() { DEFAULT_CRAWL } else { text };
    crawl_name(text).map_err(Status::invalid_argument)
}

/// Returns `None` about a crawl or a queue that does not exist. The protocol has no such error.
fn if_any<T>(found: Result<T, FrontierError>) -> Answer<Option<T>> {
    match found {
        Err(FrontierError::UnknownCrawl(_) | FrontierError::UnknownDomain(..)) => Ok(None),
        found => found.map(Some).map_err(status),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes values")]
fn status(error: FrontierError) -> Status {
    let code = match &error {
        FrontierError::UnknownCrawl(_) | FrontierError::UnknownDomain(..) => Code::NotFound,
        FrontierError::Stale(_) => Code::Aborted,
        FrontierError::TooManyPages(..)
        | FrontierError::NotInUnit(..)
        | FrontierError::Invalid(_) => Code::InvalidArgument,
        FrontierError::TooManyCrawls(..) | FrontierError::TooManyUnits(_) => {
            Code::ResourceExhausted
        }
        FrontierError::NotShared(_) => Code::Unimplemented,
        FrontierError::Store(_) | FrontierError::Unavailable(_) | FrontierError::Closed(_) => {
            Code::Unavailable
        }
    };
    Status::new(code, error.to_string())
}
