//! Tests of the layer: estimated tokens are settled by the usage that passes in an answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame};
use politely::attempts::{PacedBody, Terms};
use politely::layer::PoliteLayer;
use politely::policy::RuleBook;
use politely::{Key, Limiter, UnitCosts};
use tower::{Layer, ServiceExt};

use crate::support::in_virtual_time;

const RULE: &str = "[[rule]]\nmatch = [\"llm.example\"]\naccount = \"llm\"\n\
    limits = [\"1000 tokens/h\", \"1000 input_tokens/h\", \"1000 output_tokens/h\"]\n\
    cost = { tokens = { POST = 300, default = 0 }, input_tokens = { POST = 100 }, \
    output_tokens = { POST = 200 } }";

struct Parts(VecDeque<&'static str>);

type Answer = Response<PacedBody<Parts>>;

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.0.pop_front();
        Poll::Ready(part.map(|part| Ok(Frame::data(part.into()))))
    }
}

/// Returns what is left of the limits of tokens, input and output.
fn left(limiter: &Limiter) -> Vec<u64> {
    let key = Key::custom("llm").unwrap();
    let explained = limiter.explain(&key).unwrap();
    let budgets = explained.budgets.iter();
    budgets.map(|budget| budget.remaining).collect()
}

/// Sends `request` to a provider that answers with `parts`.
async fn send(
    limiter: &Limiter,
    request: Request<Empty<Bytes>>,
    kind: &'static str,
    parts: &[&'static str],
) -> Answer {
    let parts = VecDeque::from(parts.to_vec());
    let provider = tower::service_fn(move |request: Request<Empty<Bytes>>| {
        let codings = request.headers().get("accept-encoding");
        assert!(codings.is_none_or(|codings| codings == "identity" || request.method() == "GET"));
        let response = Response::builder().header("content-type", kind);
        let response = response.body(Parts(parts.clone()));
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let service = PoliteLayer::new(limiter.clone()).layer(provider);
    service.oneshot(request).await.unwrap()
}

fn request(method: &str) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri("http://llm.example/");
    let request = request.header("accept-encoding", "gzip, br");
    request.body(Empty::new()).unwrap()
}

fn limiter() -> Limiter {
    let limiter = in_virtual_time(100.0, 10.0);
    limiter.set_policy(RULE.parse::<RuleBook>().unwrap());
    limiter
}

const JSON: [&str; 2] = [
    r#"{"choices": [], "usage": {"prompt_"#,
    r#"tokens": 40, "completion_tokens": 7, "total_tokens": 47}}"#,
];
const START: &str = "data: {\"type\": \"message_start\", \"message\": {\"usage\": \
    {\"input_tokens\": 9, \"output_tokens\": 1}}}\n\n";
const END: &str = "data: {\"type\": \"message_delta\", \"usage\": {\"output_tokens\": 77}}\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn an_answer_is_settled_to_the_token_when_it_has_passed() {
    let limiter = limiter();
    let answer = send(&limiter, request("POST"), "application/json", &JSON).await;
    assert_eq!(left(&limiter), [700, 900, 800], "the estimates");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, JSON.concat());
    assert_eq!(left(&limiter), [953, 960, 993]);
    let answer = send(
        &limiter,
        request("POST"),
        "text/event-stream",
        &[START, END],
    )
    .await;
    answer.into_body().collect().await.unwrap();
    assert_eq!(left(&limiter), [953 - 86, 960 - 9, 993 - 77]);
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_that_is_given_up_what_is_known_counts() {
    for (read, expected) in [
        (0, [700, 900, 800]),
        (1, [700, 991, 800]),
        (2, [914, 991, 923]),
    ] {
        let limiter = limiter();
        let answer = send(
            &limiter,
            request("POST"),
            "text/event-stream",
            &[START, END, "data: x"],
        );
        let mut body = answer.await.into_body();
        for _ in 0..read {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        assert_eq!(left(&limiter), expected, "{read} events were read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_charged_no_tokens_is_not_settled() {
    let limiter = limiter();
    // A GET may return an earlier answer.
    let answer = send(&limiter, request("GET"), "application/json", &JSON).await;
    answer.into_body().collect().await.unwrap();
    assert_eq!(left(&limiter), [1000, 1000, 1000]);
    let mut asked = request("GET");
    asked.headers_mut().remove("accept-encoding");
    asked.extensions_mut().insert(Terms {
        units: UnitCosts::new([("tokens", 500)]).unwrap(),
        ..Terms::default()
    });
    let answer = send(&limiter, asked, "application/json", &JSON).await;
    answer.into_body().collect().await.unwrap();
    assert_eq!(left(&limiter), [953, 960, 993], "the request stated a cost");
}
