//! Wrong pages, wrong calls and wrong words: each is one clear line.

use politely_server::Settings;
use reqwest::Method;
use serde_json::{Value, json};

use super::place::{Place, over_both};
use super::{counts, done, fast, open, put, put_urls, take, take_one};
use crate::client::serve;

over_both!(an_answer_without_a_report_or_with_a_wrong_one_is_named);
async fn an_answer_without_a_report_or_with_a_wrong_one_is_named(place: Place) {
    let served = open(&place, fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let unit = take_one(&served, "w", 1).await;
    let url = "https://a.com/1";
    let report = |permit: &str| json!({"permit": permit, "status": 200});
    let permit = unit["grant"]["permit"].as_str().unwrap();
    for (page, field) in [
        (json!({"url": url}), "pages[0].then"),
        (
            json!({"url": url, "report": report("nonsense")}),
            "pages[0].report.permit",
        ),
        (
            json!({"url": url, "report": {"permit": permit}}),
            "pages[0].report.status",
        ),
        (
            json!({"url": url, "then": "finish", "again_unix_ms": 1_u64 << 63}),
            "pages[0].again_unix_ms",
        ),
        (json!({"url": "https://a.com/2", "then": "finish"}), "pages"),
        (json!({"url": "nonsense", "then": "finish"}), "pages"),
    ] {
        let words = json!({"token": unit["token"], "pages": [page]});
        let answer = done(&served, "w", words).await;
        assert_eq!(answer["error"]["field"], field, "{answer}");
        let detail = answer["error"]["detail"].as_str().unwrap();
        assert!(!detail.contains('\n') && detail.len() < 200, "{detail}");
    }
    // A page is handed out again after a date in the past at once, and never after a later date.
    let words = json!({"token": unit["token"], "pages": [{"url": url, "again_unix_ms": 1}]});
    assert_eq!(done(&served, "w", words).await["error"], Value::Null);
    let unit = take_one(&served, "w", 1).await;
    let year_9999 = 253_402_300_799_999_u64;
    let words =
        json!({"token": unit["token"], "pages": [{"url": url, "again_unix_ms": year_9999}]});
    assert_eq!(done(&served, "w", words).await["error"], Value::Null);
    let none = take(&served, json!({"client": "w"})).await;
    assert_eq!(none["units"], json!([]));
    served.end().await;
}

over_both!(each_wrong_page_of_a_put_is_one_clear_line);
async fn each_wrong_page_of_a_put_is_one_clear_line(place: Place) {
    let served = open(&place, fast(), None).await;
    let long_url = format!("https://a.com/{}", "x".repeat(65_536 - 14));
    let long_line = format!("{{\"url\":\"https://a.com/{}\"}}", "x".repeat(1 << 20));
    let key = "k".repeat(1_024);
    let metadata = "m".repeat(17 << 10);
    let page = |fields: Value| fields.to_string();
    let u = "https://a.com/1";
    let lines = [
        (
            page(json!({"url": long_url})),
            "the URL has 65536 bytes; at most 8192 are accepted",
        ),
        (
            page(json!({"url": "example.com/a"})),
            "not a URL: relative URL without a base",
        ),
        (page(json!({"url": "mailto:a@b.c"})), "only http and https"),
        (
            page(json!({"url": u, "key": key})),
            "the key has 1024 bytes; at most 520 are accepted",
        ),
        (
            page(json!({"url": u, "metadata": metadata})),
            "at most 16384 are accepted",
        ),
        (
            page(json!({"url": u, "due_unix_ms": 1_u64 << 63})),
            "is after the year 9999",
        ),
        (
            page(json!({"url": u, "due_unix_ms": -1})),
            "invalid value: integer `-1`",
        ),
        (
            page(json!({"url": u, "priority": 10})),
            "the priority 10 is not from 0 to 9",
        ),
        (
            page(json!({"url": u, "depth": 10})),
            "unknown field `depth`",
        ),
        (page(json!({"key": "a.com"})), "missing field `url`"),
        ("nonsense".to_owned(), "not a JSON object"),
        ("[\"https://a.com/1\"]".to_owned(), "not a JSON object"),
        ("{\"url\":".to_owned(), "EOF while parsing"),
        (long_line, "the line is longer than 262144 bytes"),
    ];
    let text: Vec<_> = lines.iter().map(|(line, _)| line.as_str()).collect();
    // Good pages between bad ones are stored.
    let good = r#"{"url":"https://a.com/good","due_unix_ms":1}"#;
    let text = format!(
        "{good}\r\n\n{}\n{{\"url\":\"https://a.com/last\"}}",
        text.join("\n")
    );
    let (status, answers) = put(&served, "c", &text).await;
    assert_eq!(
        (status.as_u16(), answers.len()),
        (200, lines.len() + 2),
        "{answers:?}"
    );
    for (answer, (_, wanted)) in answers[1..].iter().zip(&lines) {
        assert_eq!(answer["answer"], "invalid", "{answer} {wanted}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(wanted), "{detail}: {wanted}");
        assert!(!detail.contains('\n') && detail.len() < 300, "{detail}");
    }
    let [first, .., last] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(
        (&first["answer"], &last["answer"]),
        (&json!("new"), &json!("new"))
    );
    let numbers = counts(&served).await;
    assert_eq!(
        (&numbers["pages"], &numbers["ready"]),
        (&json!(2), &json!(2))
    );
    served.end().await;
}

over_both!(each_wrong_call_is_a_problem_document);
async fn each_wrong_call_is_a_problem_document(place: Place) {
    let served = open(&place, fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let long = "c".repeat(65);
    let post = Method::POST;
    for (method, path, body, status, field) in [
        (&post, "d/take", r#"{"client":"w"}"#, 404, "crawl"),
        (&post, "d/purge", "{}", 404, "crawl"),
        (&post, "c/purge", r#"{"domain":"b.com"}"#, 404, "domain"),
        (&post, "a%20b/take", r#"{"client":"w"}"#, 422, "crawl"),
        (
            &post,
            &format!("{long}/take"),
            r#"{"client":"w"}"#,
            422,
            "crawl",
        ),
        (&post, "c/take", r#"{"client":""}"#, 422, "client"),
        (&post, "c/take", r#"{"client":"w","units":0}"#, 422, "units"),
        (
            &post,
            "c/take",
            r#"{"client":"w","units":101}"#,
            422,
            "units",
        ),
        (
            &post,
            "c/take",
            r#"{"client":"w","pages_per_unit":1001}"#,
            422,
            "pages_per_unit",
        ),
        (
            &post,
            "c/done",
            r#"{"client":"w","units":[]}"#,
            422,
            "units",
        ),
        (
            &post,
            "c/block",
            r#"{"domain":"a.com","until_unix_ms":9223372036854775808}"#,
            422,
            "until_unix_ms",
        ),
        (&Method::GET, "d/domains", "", 404, "crawl"),
        (&Method::GET, "c/urls/nonsense", "", 422, "url"),
        (
            &Method::GET,
            "c/urls/https%3A%2F%2Fa.com%2F2",
            "",
            404,
            "url",
        ),
        (&Method::GET, "c/domains?limit=x", "", 400, "limit"),
    ] {
        let path = format!("/api/v1/frontier/{path}");
        let (found, problem) = served.call(method.clone(), &path, body).await;
        assert_eq!(
            (found.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{path} {body}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.contains('\n') && detail.len() < 300, "{detail}");
    }
    let (status, answers) = put(&served, &long, "").await;
    assert_eq!(status, 422, "{answers:?}");
    let (status, _) = served.call(post, "/api/v1/frontier/c/put", "{}").await;
    assert_eq!(status, 415);
    served.end().await;

    let without = serve(Settings::default(), None).await;
    let (status, problem) = without.call(Method::GET, "/api/v1/frontier", "").await;
    assert_eq!(status, 404);
    assert_eq!(
        problem["detail"],
        "this coordinator has no frontier; start it with --frontier DIR"
    );
    without.end().await;
}
