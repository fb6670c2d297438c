//! Tests the reader of usage with the cases of the Python client's `test_usage.py`.

use http::HeaderValue;

use super::*;

const OPENAI: &str =
    r#"{"usage": {"prompt_tokens": 40, "completion_tokens": 300, "total_tokens": 340}}"#;
const WORDS: &str =
    "{\"choices\": [{\"delta\": {\"content\": \"a \\\"line\u{2028}another\u{85}\"}}]}";
const START: &str =
    r#"{"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}"#;
const DELTA: &str = r#"{"type": "content_block_delta", "delta": {"text": "words"}}"#;
const END: &str = r#"{"type": "message_delta", "usage": {"output_tokens": 77}}"#;

fn of(kind: &'static str) -> Option<UsageReader> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    UsageReader::of(&headers)
}

/// Returns what a body states, which must not depend on the parts in which it comes.
fn used(kind: &'static str, body: &str) -> UnitCosts {
    let of_parts = |length: usize| {
        let mut reader = of(kind).expect("a kind that is read");
        for part in body.as_bytes().chunks(length) {
            reader.read(part);
        }
        reader.used()
    };
    let whole = of_parts(body.len().max(1));
    for length in 1..12 {
        assert_eq!(of_parts(length), whole, "parts of {length} bytes: {body}");
    }
    whole
}

fn json(body: &str) -> UnitCosts {
    used("application/json; charset=utf-8", body)
}

fn stream(events: &[&str], end: &str) -> UnitCosts {
    let event = |event: &&str| format!("event: x{end}data: {event}{end}{end}");
    used(
        "text/event-stream",
        &events.iter().map(event).collect::<String>(),
    )
}

fn all(tokens: u64, input: u64, output: u64) -> UnitCosts {
    UnitCosts::new(USAGE_UNITS.into_iter().zip([tokens, input, output])).expect("three units")
}

fn only_input(input: u64) -> UnitCosts {
    UnitCosts::new([("input_tokens", input)]).expect("one unit")
}

#[test]
fn the_usage_of_each_api_is_read_from_a_body() {
    assert_eq!(json(OPENAI), all(340, 40, 300));
    let embedding =
        r#"{"data": [{"embedding": [0.1, -2e3]}], "usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    assert_eq!(json(embedding), all(8, 8, 0));
    let responses = r#"{"output": [{"usage": 3}], "usage": {"input_tokens": 36,
        "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 87,
        "output_tokens_details": {"reasoning_tokens": 80}, "total_tokens": 123}}"#;
    assert_eq!(json(responses), all(123, 36, 87));
    let anthropic = r#"{"type": "message", "usage": {"input_tokens": 40, "output_tokens": 300,
        "cache_creation_input_tokens": 10, "cache_read_input_tokens": 900}}"#;
    assert_eq!(json(anthropic), all(350, 50, 300));
    let gemini = r#"{"candidates": [{}], "usageMetadata": {"promptTokenCount": 8,
        "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 33}}"#;
    assert_eq!(json(gemini), all(33, 8, 25));
    let gemini = format!(
        "[{gemini},\n{{\"usageMetadata\": {{\"promptTokenCount\": 8, \
        \"candidatesTokenCount\": 40, \"totalTokenCount\": 48}}}}]"
    );
    assert_eq!(
        json(&gemini),
        all(48, 8, 40),
        "the last element of a stream"
    );
}

#[test]
fn the_usage_of_each_api_is_read_from_a_stream() {
    let last = OPENAI.replace("{\"usage\"", "{\"choices\": [], \"usage\"");
    let completed = format!(r#"{{"type": "response.completed", "response": {OPENAI}}}"#);
    for end in ["\n", "\r\n", "\r"] {
        let openai = stream(&[WORDS, r#"{"usage": null}"#, &last, "[DONE]"], end);
        assert_eq!(openai, all(340, 40, 300));
        assert_eq!(stream(&[DELTA, &completed], end), all(340, 40, 300));
        assert_eq!(stream(&[START, DELTA, END], end), all(86, 9, 77));
    }
}

#[test]
fn an_event_of_several_data_lines_is_one_object() {
    let halves = OPENAI.replace(", \"completion", ",\ndata:\"completion");
    assert_eq!(stream(&[&halves], "\n"), all(340, 40, 300));
    let broken = OPENAI.replace(", \"completion", ",\n\ndata:\"completion");
    assert_eq!(stream(&[&broken], "\n"), UnitCosts::NONE);
}

#[test]
fn a_stream_that_ended_early_states_no_placeholder() {
    assert_eq!(stream(&[START, DELTA], "\n"), only_input(9));
    let empty = OPENAI.replace("300", "0").replace("340", "40");
    assert_eq!(stream(&[&empty, WORDS], "\n"), only_input(40));
    let cut = &OPENAI[..OPENAI.len() - 1];
    assert_eq!(json(cut), UnitCosts::NONE);
}

#[test]
fn other_answers_state_nothing() {
    for body in [
        "",
        "no json",
        "[]",
        "{}",
        "}}]]{",
        r#"{"usage": {"total": 3}}"#,
        r#"{"usage": {"total_tokens": "3", "prompt_tokens": -1, "input_tokens": 2.5}}"#,
        r#"{"usage": {"total_tokens": 99999999999999999, "prompt_tokens": 1}}"#,
        r#"{"text": "{\"usage\": {\"total_tokens\": 3}}", "deep": {"a": {"usage": {"total_tokens": 3}}}}"#,
    ] {
        assert_eq!(json(body), UnitCosts::NONE, "{body}");
    }
    assert!(of("text/html").is_none());
    let mut headers = HeaderMap::new();
    assert!(UsageReader::of(&headers).is_none());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(UsageReader::of(&headers).is_none());
}

/// Pieces of bodies, whole and broken.
const PIECES: [&str; 18] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"usage\"",
    "\"message\"",
    "\"total_tokens\"",
    "\"input_tokens\"",
    "\"type\"",
    "7",
    "\n",
    "\r",
    "data:",
    "\\",
    "\"",
    "\u{2028}",
];

proptest::proptest! {
    #[test]
    fn any_body_means_the_same_in_any_parts(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..80),
    ) {
        let body = pieces.concat();
        json(&body);
        used("text/event-stream", &body);
    }
}
