//! Repairs responses that browsers and curl accept and hyper refuses.
//!
//! | in a response | becomes |
//! | --- | --- |
//! | a NUL, or a CR that no LF follows | a blank, as RFC 9112, section 2.2, allows for a bare CR |
//! | the plus sign of `Content-Length: +2` | a blank |
//! | the version `HTTP/1.0` | `HTTP/1.1`: some servers send it with `Transfer-Encoding: chunked` |
//! | a tab in the status line | a blank |
//! | further blanks before the status | nothing |
//! | the comma of `Transfer-Encoding: chunked,` | a blank: an empty element means nothing (RFC 9110) |
//! | an LF without CR at the end of a line between chunks | CR LF |
//!
//! A CR at the end of a read is left alone, because the next byte is not known.

use super::chunks::Chunks;
use super::head::{After, Head};

/// Repairs the responses on one HTTP/1 connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair(Place);

/// The part of a response that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// A body, or the time before the first request.
    #[default]
    Body,
    Head(Head),
    Chunks(Chunks),
}

/// The fate of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    Keep,
    Drop,
    /// It stays, and a CR comes before it.
    AddCr,
}

impl Repair {
    /// Records that a request was sent: a head follows.
    pub(super) fn sent(&mut self) {
        self.0 = Place::Head(Head::BEGIN);
    }

    /// Repairs `bytes`, which follow those of the last call. Returns them if their number changes.
    pub(super) fn repair(&mut self, bytes: &mut [u8]) -> Option<Vec<u8>> {
        // The repaired bytes, and how many of `bytes` they stand for.
        let mut repaired: Option<(Vec<u8>, usize)> = None;
        let mut i = 0;
        while i < bytes.len() {
            let edit = match &mut self.0 {
                Place::Body => break,
                Place::Head(head) => {
                    let (first, rest) = bytes[i..].split_at_mut(1);
                    let (edit, after) = head.take(&mut first[0], rest);
                    match after {
                        Some(After::Head) => self.0 = Place::Head(Head::BEGIN),
                        Some(After::Chunks) => self.0 = Place::Chunks(Chunks::BEGIN),
                        Some(After::Body) => self.0 = Place::Body,
                        None => {}
                    }
                    edit
                }
                Place::Chunks(chunks) => {
                    i += chunks.skip(&bytes[i..]);
                    match bytes.get(i) {
                        Some(byte) => chunks.take(*byte),
                        None => break,
                    }
                }
            };
            if edit != Edit::Keep {
                let (out, done) = repaired.get_or_insert_default();
                out.extend_from_slice(&bytes[*done..i]);
                if edit == Edit::AddCr {
                    out.extend_from_slice(b"\r\n");
                }
                *done = i + 1;
            }
            i += 1;
        }
        repaired.map(|(mut out, done)| {
            out.extend_from_slice(&bytes[done..]);
            out
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text after the repair, read in pieces that end at `cuts`.
    fn repaired(text: &str, cuts: &[usize]) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let (mut repair, mut out) = (Repair::default(), Vec::new());
        repair.sent();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let cut = cut.clamp(from, bytes.len());
            let piece = &mut bytes[from..cut];
            match repair.repair(piece) {
                Some(other) => out.extend(other),
                None => out.extend_from_slice(piece),
            }
            from = cut;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_response_that_hyper_refuses_is_repaired() {
        for (text, right) in [
            (
                "HTTP/1.1 200 OK\r\nX-A: a\rb\0c\r\nContent-Length: +2\r\n\r\n\0\r+",
                "HTTP/1.1 200 OK\r\nX-A: a b c\r\nContent-Length:  2\r\n\r\n\0\r+",
            ),
            (
                "HTTP/1.1 200 OK\ncontent-length:+2\n\n\0",
                "HTTP/1.1 200 OK\ncontent-length: 2\n\n\0",
            ),
            (
                "HTTP/1.1 103 Early\r\nX: \0\r\n\r\nHTTP/1.1 200 OK\r\nX: \0\r\n\r\n\0",
                "HTTP/1.1 103 Early\r\nX:  \r\n\r\nHTTP/1.1 200 OK\r\nX:  \r\n\r\n\0",
            ),
            (
                "HTTP/1.1 200 OK\r\nX-Content-Length: +2\r\n\r\n",
                "HTTP/1.1 200 OK\r\nX-Content-Length: +2\r\n\r\n",
            ),
            (
                "HTTP/1.0 200 OK\r\nX: HTTP/1.0\r\n\r\nHTTP/1.0",
                "HTTP/1.1 200 OK\r\nX: HTTP/1.0\r\n\r\nHTTP/1.0",
            ),
            (
                "HTTP/1.1\t  200\t OK\r\n\r\na  b",
                "HTTP/1.1 200  OK\r\n\r\na  b",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding:Chunked\r\n\r\n\
                 6;x=1\na\nage!\r\nA\r\n0123456789\n0\nX: y\n\nrest\n",
                "HTTP/1.1 200 OK\r\ntransfer-encoding:Chunked\r\n\r\n\
                 6;x=1\r\na\nage!\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest\n",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n6\n",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n6\n",
            ),
        ] {
            assert_eq!(repaired(text, &[]), right);
            for cut in 1..text.len() {
                let before = text.as_bytes()[cut - 1];
                if before != b'\r' {
                    assert_eq!(repaired(text, &[cut]), right, "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn an_empty_element_after_the_last_coding_is_removed() {
        let text = |coding: &str, line: &str| {
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n1{line}a{line}0{line}")
        };
        for (coding, right) in [
            ("chunked,", "chunked "),
            ("gzip, chunked, ,\t", "gzip, chunked   \t"),
        ] {
            assert_eq!(repaired(&text(coding, "\n"), &[]), text(right, "\r\n"));
        }
    }

    proptest! {
        #[test]
        fn a_valid_response_stays_as_it_is(
            fields in proptest::collection::vec("[a-z-]{1,12}: [ -~]{0,20}\r\n", 0..6),
            chunks in proptest::option::of(proptest::collection::vec("[\\x00-\\x7f]{1,40}", 0..4)),
            body in "[\\x00-\\x7f]{0,40}",
            cuts in proptest::collection::vec(0_usize..300, 0..6),
        ) {
            let fields = fields.concat();
            prop_assume!(!fields.contains("content-length:"));
            let body = match chunks {
                None => format!("\r\n{body}"),
                Some(chunks) => {
                    let chunk = |text: &String| format!("{:x}\r\n{text}\r\n", text.len());
                    let chunks: String = chunks.iter().map(chunk).collect();
                    format!("Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\nx: y\r\n\r\n")
                }
            };
            let text = format!("HTTP/1.1 200 OK\r\n{fields}{body}");
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(repaired(&text, &cuts), text);
        }
    }
}
