//! Recognises a limit, or an account without credit, that is stated in the words of an error page.
//!
//! GitHub's secondary limit, many gateways and older APIs refuse with a 403, a 400 or a 503 and
//! state the reason only in the body. A text counts if it names a limit and says that it is
//! exceeded. A phrase or an error code that has no other meaning counts too. Only the text that a
//! reader sees is searched. Tags, scripts and styles are left out, because an application's script
//! holds the words of all its errors. A refusal is short: of a longer text only the title, the
//! headings and error codes count.
//!
//! Statuses that mean a limit by themselves need no text. 404 and 410 mean that the page is gone,
//! whatever the text.
//!
//! An account without credit is no limit: no wait restores it. Only codes and sentences that have
//! no other meaning count. "You exceeded your current quota" is none of them: `OpenAI` says so to
//! accounts without credit, and Gemini says so of a minute's quota.

use http::StatusCode;

use super::block::BODY_SCANNED;
use super::words::Words;

/// Number of texts in [`TEXTS`] that state an account without credit.
const SPENT: usize = 12;
/// Number of texts in [`TEXTS`] before the names of a limit.
const PHRASES: usize = SPENT + 24;

/// Words for an account without credit, then phrases and error codes that state a limit by
/// themselves, then names of a limit.
const TEXTS: [&[u8]; 45] = [
    // OpenAI and its like.
    b"insufficient_quota",
    b"billing_hard_limit_reached",
    b"billing_not_active",
    // Anthropic.
    b"credit balance is too low",
    b"billing_error",
    // DeepSeek, OpenRouter and others.
    b"insufficient balance",
    b"insufficient_balance",
    b"insufficient credits",
    b"insufficient_credits",
    b"account_quota_exceeded",
    b"billing_quota_exceeded",
    b"credit_quota_exceeded",
    // Limits.
    b"secondary rate limit",
    b"too many requests",
    b"too many api requests",
    b"requested too many times",
    b"being rate limited",
    b"been rate limited",
    b"been rate-limited",
    b"abuse detection mechanism",
    b"request was throttled",
    b"requests are throttled",
    b"request rate too high",
    b"request rate is too high",
    b"rate exceeded",
    b"ratelimitexceeded",
    b"dailylimitexceeded",
    b"quotaexceeded",
    b"request_limit_exceeded",
    b"rate_limit_exceeded",
    b"requestlimitexceeded",
    b"throttlingexception",
    b"requestthrottled",
    b"toomanyrequests",
    b"provisionedthroughputexceeded",
    b"<code>slowdown</code>",
    // Names of a limit.
    b"rate limit",
    b"rate-limit",
    b"ratelimit",
    b"rate_limit",
    b"request limit",
    b"requests limit",
    b"api limit",
    b"call limit",
    b"request quota",
];

static WORDS: Words<{ 4 * TEXTS.len() }> = Words::new(&TEXTS);

/// Words for an exceeded limit, in lower case.
const EXCEEDED: [&str; 7] = [
    "exceed",
    "reached",
    "over the",
    "hit your",
    "hit the",
    "too fast",
    "slow down",
];

/// The furthest that such a word may be from the limit's name, in bytes.
const NEAR: usize = 40;

/// The longest text of a refusal, in bytes.
const SHORT: usize = 1024;

/// What an error answer states in the words of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stated {
    /// A limit is exceeded.
    Limit,
    /// The account has no credit left. The same request fails until it is paid for.
    SpentAccount,
}

/// Returns what an error answer states in the words of its body.
pub(super) fn stated(status: StatusCode, body: &[u8]) -> Option<Stated> {
    let may = match status.as_u16() {
        404 | 407 | 410 => false,
        status => (400..600).contains(&status),
    };
    if !may || body.is_empty() {
        return None;
    }
    let body = String::from_utf8_lossy(&body[..body.len().min(BODY_SCANNED)]).to_ascii_lowercase();
    let mut text = visible(&body);
    let is_long = text.len() > SHORT;
    // A code is one word, and it is no prose in JSON.
    let has_codes = body.trim_start().starts_with(['{', '[']);
    if is_long && !has_codes {
        text = headings(&body);
    }
    let mut stated = None;
    WORDS.find(text.as_bytes(), |at, word| {
        let is_code = word < PHRASES && !TEXTS[word].contains(&b' ');
        if is_long && has_codes && !is_code {
            return;
        }
        if word < SPENT {
            stated = Some(Stated::SpentAccount);
        } else if stated.is_none() && (word < PHRASES || is_exceeded(&text, at, TEXTS[word].len()))
        {
            stated = Some(Stated::Limit);
        }
    });
    stated
}

/// Returns whether a word near the limit's name says that it is exceeded.
fn is_exceeded(text: &str, at: usize, length: usize) -> bool {
    let from = text.floor_char_boundary(at.saturating_sub(NEAR));
    let to = text.ceil_char_boundary((at + length + NEAR).min(text.len()));
    let near = &text[from..to];
    EXCEEDED.iter().any(|word| near.contains(word))
}

/// Returns the text of the title and of the first headings.
fn headings(body: &str) -> String {
    let texts = ["title", "h1"].map(|name| {
        let begin = body
            .split_once(&format!("<{name}"))
            .map_or("", |(_, rest)| rest);
        let end = begin.find(&format!("</{name}")).unwrap_or(0);
        visible(begin[..end].split_once('>').map_or("", |(_, text)| text))
    });
    texts.join(" ")
}

/// Returns the text outside tags, scripts and styles of a body in lower case, with each run of
/// blanks as one.
fn visible(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    loop {
        let (words, tag) = match rest.find('<') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        for word in words.split_ascii_whitespace() {
            if !text.is_empty() && !text.ends_with([' ', '>']) {
                text.push(' ');
            }
            text.push_str(word);
        }
        let Some(tag) = tag.strip_prefix('<') else {
            return text;
        };
        // S3's error code counts only inside its element.
        if tag.starts_with("code>slowdown</code>") {
            text.push_str("<code>slowdown</code>");
        }
        let end = ["script", "style", "!--", "template", "noscript"]
            .iter()
            .find(|name| tag.starts_with(**name))
            .map(|name| match *name {
                "!--" => "-->".to_owned(),
                name => format!("</{name}"),
            });
        let tag = match end {
            Some(end) => tag.find(&end).map_or("", |at| &tag[at..]),
            None => tag,
        };
        rest = tag.find('>').map_or("", |at| &tag[at + 1..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn states(status: u16, body: &str) -> bool {
        let status = StatusCode::from_u16(status).expect("a status");
        stated(status, body.as_bytes()) == Some(Stated::Limit)
    }

    #[test]
    fn row_accounts_without_credit() {
        for body in [
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            r#"{"error":{"code":"billing_hard_limit_reached","message":"Billing hard limit has been reached"}}"#,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
            r#"{"type":"error","error":{"type":"billing_error","message":"Rate limit exceeded"}}"#,
            r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#,
        ] {
            for status in [400, 402, 403, 429, 500, 503] {
                let status = StatusCode::from_u16(status).expect("a status");
                let said = stated(status, body.as_bytes());
                assert_eq!(said, Some(Stated::SpentAccount), "{status} {body}");
            }
        }
    }

    /// Gemini's refusal by the minute has the sentence of `OpenAI`'s refusal for ever.
    #[test]
    fn trap_a_quota_that_a_wait_restores() {
        for body in [
            r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
            r#"{"error":{"errors":[{"reason":"quotaExceeded"}]}}"#,
            "<script>const codes = ['insufficient_quota']</script><h1>Too Many Requests</h1>",
        ] {
            let said = stated(StatusCode::TOO_MANY_REQUESTS, body.as_bytes());
            assert_ne!(said, Some(Stated::SpentAccount), "{body}");
        }
    }

    #[test]
    fn row_refusals_in_words() {
        for body in [
            r#"{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#,
            r#"{"message":"API rate limit exceeded for 203.0.113.7."}"#,
            "You have triggered an abuse detection mechanism.",
            "Rate limit exceeded",
            "RATE LIMIT EXCEEDED",
            "<html><head><title>429 Too\n  Many Requests</title>",
            r#"{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}"#,
            r#"{"error":{"errors":[{"reason":"userRateLimitExceeded"}]}}"#,
            r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#,
            "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
            r#"[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]"#,
            r#"{"detail":"Request was throttled. Expected available in 3 seconds."}"#,
            "You have reached your rate limit.",
            "Your rate-limit of 60 requests has been exceeded.",
            r#"{"error":{"message":"(#4) Application request limit reached"}}"#,
            "This endpoint has been requested too many times. Try again later.",
        ] {
            for status in [400, 401, 403, 500, 503] {
                assert!(states(status, body), "{status} {body}");
            }
            assert!(!states(404, body), "{body}");
            assert!(!states(200, body), "{body}");
        }
    }

    #[test]
    fn trap_other_error_pages() {
        for body in [
            "",
            "<h1>403 Forbidden</h1><hr>nginx",
            "<h1>Access Denied</h1>",
            "<nav><a href=/docs/rate-limit-exceeded>Rate limits</a></nav><h1>Forbidden</h1>",
            "<script>const errors={429:'Too Many Requests',403:'Forbidden'}</script><h1>Forbidden</h1>",
            "<style>.rate-limit-exceeded{}</style><!-- rate limit exceeded --><p>No.</p>",
            r#"{"message":"Resource not accessible by integration","documentation_url":"https://docs.example/rest#rate-limiting"}"#,
            "The maximum upload size was exceeded.",
        ] {
            assert!(!states(403, body), "{body}");
        }
    }

    /// A long error page, such as that of a forum, may have the words of a limit in its prose.
    #[test]
    fn trap_words_in_a_long_page() {
        let long = "members only ".repeat(200);
        for body in [
            format!("<title>No entry</title><h1>Forbidden</h1><p>{long} too many requests {long}"),
            format!("{long} rate limit exceeded"),
            format!(r#"{{"message": "{long}", "related": "Too many requests: what to do"}}"#),
        ] {
            assert!(!states(403, &body), "{body}");
        }
        for body in [
            format!("<title>Too Many Requests</title><p>{long}"),
            format!("<h1 class=big>API rate limit <b>exceeded</b></h1><p>{long}"),
            format!(r#"{{"message": "{long}", "code": "rate_limit_exceeded"}}"#),
            format!("<script>{long}</script>Too many requests"),
        ] {
            assert!(states(403, &body), "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(
            body in proptest::collection::vec(any::<u8>(), 0..400),
            text in "(<[a-z!-]{0,8}>?|rate limit|exceeded|ä|[ \n]){0,30}",
        ) {
            let _ = stated(StatusCode::FORBIDDEN, &body);
            let plain = states(403, &text);
            prop_assert_eq!(states(403, &text.to_ascii_uppercase()), plain);
        }
    }
}
