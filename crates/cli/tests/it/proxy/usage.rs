//! Tokens of language models are settled by the usage in answers, as these pass.

use reqwest::RequestBuilder;

use super::host::Host;
use super::limits::with_rule;
use super::{Proxy, client};

const QUOTA: u64 = 100_000;
const ESTIMATE: u64 = 1_000;
const RULE: &str = "account = \"llm\"\nlimits = [\"100000 tokens/h\"]\n\
    cost = { tokens = { POST = 1000, default = 0 } }";

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// Answers of providers, each with its type and its tokens.
const ANSWERS: [(&str, &str, u64); 5] = [
    (
        JSON,
        r#"{"choices": [{"message": {"content": "hello"}}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 3000, "total_tokens": 3040}}"#,
        3_040,
    ),
    (
        STREAM,
        "data: {\"choices\": [{\"delta\": {\"content\": \"hello\u{2028}\"}}], \"usage\": null}\n\n\
         data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 31, \"total_tokens\": 48,\n\
         data: \"completion_tokens\": 17}}\n\ndata: [DONE]\n\n",
        48,
    ),
    (
        JSON,
        r#"{"type": "message", "usage": {"input_tokens": 25, "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 5, "output_tokens": 100}}"#,
        130,
    ),
    (
        STREAM,
        "event: message_start\r\ndata: {\"type\": \"message_start\", \"message\": {\"usage\": \
         {\"input_tokens\": 9, \"output_tokens\": 1}}}\r\n\r\nevent: message_delta\r\ndata: \
         {\"type\": \"message_delta\", \"usage\": {\"output_tokens\": 77}}\r\n\r\n",
        86,
    ),
    (
        STREAM,
        "data: {\"candidates\": [], \"usageMetadata\": {\"promptTokenCount\": 8, \
         \"candidatesTokenCount\": 20, \"thoughtsTokenCount\": 5, \"totalTokenCount\": 33}}\r\n\r\n",
        33,
    ),
];

/// Returns a request that the host answers with `body`.
fn ask(proxy: &Proxy, path: &str, kind: &str, body: &'static str) -> RequestBuilder {
    let request = client().post(proxy.at(&format!("{path}?{kind}")));
    let request = request.header("accept-encoding", "gzip, br");
    request.header("content-type", kind).body(body)
}

/// Asserts that exactly `spent` tokens of the quota are spent, and spends the rest.
async fn assert_spent(proxy: &Proxy, spent: u64) {
    for (cost, status) in [(QUOTA - spent + 1, 429), (QUOTA - spent, 200)] {
        let request = client().get(proxy.at("/page")).header("prefer", "wait=0");
        let request = request.header("x-politely-cost", format!("tokens={cost}"));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status, "{spent} tokens were used");
    }
}

#[tokio::test]
async fn the_tokens_of_each_provider_are_settled_exactly() {
    let host = Host::start().await;
    let (proxy, _folder) = with_rule(&host, RULE);
    let mut spent = 0;
    for (kind, body, tokens) in ANSWERS {
        let answer = ask(&proxy, "/says", kind, body).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), body);
        spent += tokens;
    }
    let (_, head) = host.heads().remove(0);
    assert_eq!(head["accept-encoding"], "identity", "codings are not read");
    let answer = ask(&proxy, "/says", "text/plain", "no usage").send().await;
    assert_eq!(answer.unwrap().text().await.unwrap(), "no usage");
    assert_spent(&proxy, spent + ESTIMATE).await;
}

#[tokio::test]
async fn a_caller_that_leaves_a_stream_pays_what_is_known_or_the_estimate() {
    let host = Host::start().await;
    let (proxy, _folder) = with_rule(&host, RULE);
    let mut spent = 0;
    for (body, tokens) in [
        (ANSWERS[3].1, ANSWERS[3].2),
        ("data: {\"usage\": null}\n\n", ESTIMATE),
    ] {
        let answer = ask(&proxy, "/says-on", STREAM, body).send().await;
        let mut answer = answer.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), body);
        drop(answer);
        host.until_live(0).await;
        spent += tokens;
    }
    assert_spent(&proxy, spent).await;
}
