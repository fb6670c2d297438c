//! A request and its answer, as an archive keeps them.

use std::io::{self, Write as _};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use jiff::Timestamp;
use ring::digest::{Context, Digest, SHA1_FOR_LEGACY_USE_ONLY};
use tempfile::SpooledTempFile;

use crate::fetch::transport::call::Call;
use crate::fetch::transport::content::IN_MEMORY_MAX;

/// The field that keeps a transfer coding which is undone, as Common Crawl names it.
const WAS_TRANSFER_ENCODING: HeaderName = HeaderName::from_static("x-crawler-transfer-encoding");
/// The same for a length that is not that of the body in the archive.
const WAS_CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-crawler-content-length");

/// The head of a request as it was sent, without secrets.
#[derive(Clone, Debug)]
pub(crate) struct SentHead(Vec<u8>);

impl SentHead {
    /// Returns the head of `request`. Logins and fields that are marked as sensitive are left out:
    /// archives are published.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut head = format!("{} {path} HTTP/1.1\r\n", request.method()).into_bytes();
        if !request.headers().contains_key(HOST)
            && let Some(authority) = uri.authority()
        {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            head.extend(format!("host: {host}\r\n").as_bytes());
        }
        let is_secret = |name: &HeaderName, value: &HeaderValue| {
            value.is_sensitive() || *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION
        };
        for (name, value) in request.headers() {
            if !is_secret(name, value) {
                add_field(&mut head, name, value.as_bytes());
            }
        }
        head.extend(b"\r\n");
        Self(head)
    }
}

/// A request and its answer. The body is as it came, without the transfer coding.
pub(crate) struct Exchange {
    /// The request, with its body.
    pub(super) request: Vec<u8>,
    pub(super) status: StatusCode,
    is_head: bool,
    pub(super) is_http2: bool,
    headers: HeaderMap,
    pub(super) body: SpooledTempFile,
    pub(crate) len: u64,
    digest: Context,
    /// Whether the whole body was read.
    pub(super) is_whole: bool,
    pub(super) at: Timestamp,
}

impl Exchange {
    /// Returns the beginning of an exchange, whose answer has this head.
    pub(crate) fn of(sent: SentHead, call: Call<'_>, answer: &http::response::Parts) -> Self {
        let SentHead(mut request) = sent;
        request.extend_from_slice(call.content);
        let is_head = *call.method == Method::HEAD;
        Self {
            request,
            status: answer.status,
            is_head,
            is_http2: answer.version == Version::HTTP_2,
            headers: answer.headers.clone(),
            body: SpooledTempFile::new(IN_MEMORY_MAX),
            len: 0,
            digest: Context::new(&SHA1_FOR_LEGACY_USE_ONLY),
            is_whole: is_head,
            at: Timestamp::now(),
        }
    }

    /// Adds a part of the body.
    pub(crate) fn push(&mut self, part: &[u8]) -> io::Result<()> {
        self.body.write_all(part)?;
        self.len += part.len() as u64;
        self.digest.update(part);
        Ok(())
    }

    /// Records that the body ended.
    pub(crate) fn end(&mut self) {
        self.is_whole = true;
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest.clone().finish()
    }

    /// Returns the head of the answer. Its fields describe the body in the archive.
    pub(super) fn head(&self) -> Vec<u8> {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", self.status.as_u16()).into_bytes();
        // A head alone describes the body that another request would get.
        let has_body = !self.is_head && self.status != StatusCode::NOT_MODIFIED;
        let len = self.len.to_string();
        let is_len = |value: &HeaderValue| value.as_bytes() == len.as_bytes();
        for (name, value) in &self.headers {
            let name = match name {
                name if *name == TRANSFER_ENCODING => &WAS_TRANSFER_ENCODING,
                name if *name == CONTENT_LENGTH && has_body && !is_len(value) => {
                    &WAS_CONTENT_LENGTH
                }
                name => name,
            };
            add_field(&mut head, name, value.as_bytes());
        }
        if has_body && !self.headers.get_all(CONTENT_LENGTH).iter().any(is_len) {
            add_field(&mut head, &CONTENT_LENGTH, len.as_bytes());
        }
        head.extend(b"\r\n");
        head
    }
}

fn add_field(head: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    head.extend(name.as_str().as_bytes());
    head.extend(b": ");
    head.extend(value);
    head.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::transport::call::Body;

    fn exchange(fields: &[(HeaderName, &'static str)], method: &Method) -> Exchange {
        let mut answer = http::Response::new(());
        for (name, value) in fields {
            let value = HeaderValue::from_static(value);
            answer.headers_mut().append(name, value);
        }
        let call = Call {
            method,
            url: &url::Url::parse("http://a.example/").unwrap(),
            headers: &HeaderMap::new(),
            content: &bytes::Bytes::new(),
            may_repeat: true,
            body: Body::Count,
            is_once: false,
            needs_start: false,
            reads_links: false,
        };
        let sent = SentHead::of(&Request::new(()));
        Exchange::of(sent, call, &answer.into_parts().0)
    }

    #[test]
    fn the_fields_of_a_head_describe_the_body_that_is_kept() {
        let text = |exchange: &Exchange| String::from_utf8(exchange.head()).unwrap();
        let mut chunked = exchange(&[(TRANSFER_ENCODING, "chunked")], &Method::GET);
        chunked.push(b"body").unwrap();
        let head =
            "HTTP/1.1 200 OK\r\nx-crawler-transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n";
        assert_eq!(text(&chunked), head);
        let mut cut = exchange(&[(CONTENT_LENGTH, "9")], &Method::GET);
        cut.push(b"body").unwrap();
        let head = "HTTP/1.1 200 OK\r\nx-crawler-content-length: 9\r\ncontent-length: 4\r\n\r\n";
        assert_eq!(text(&cut), head);
        let of_head = exchange(&[(CONTENT_LENGTH, "9")], &Method::HEAD);
        assert_eq!(
            text(&of_head),
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
        );
        assert!(of_head.is_whole && !cut.is_whole);
    }

    #[test]
    fn no_secret_is_part_of_a_request() {
        let mut secret = HeaderValue::from_static("s3cret");
        secret.set_sensitive(true);
        let request = Request::get("https://u:s3cret@a.example/x?y")
            .header("x-key", secret)
            .header(AUTHORIZATION, "s3cret")
            .header("accept", "*/*")
            .body(())
            .unwrap();
        let SentHead(head) = SentHead::of(&request);
        let head = String::from_utf8(head).unwrap();
        assert_eq!(
            head,
            "GET /x?y HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\n\r\n"
        );
    }
}
