//! Repairs response heads that browsers and curl accept and hyper refuses.
//!
//! | in a head | becomes |
//! | --- | --- |
//! | a NUL, or a CR that no LF follows | a blank, as RFC 9112, section 2.2, allows for a bare CR |
//! | the plus sign of `Content-Length: +2` | a blank |
//! | the version `HTTP/1.0` | `HTTP/1.1`: some servers send it with `Transfer-Encoding: chunked` |
//!
//! The repair changes bytes in place, so it adds and removes none. A CR at the end of a read is
//! left alone, because the next byte is not known.

/// The name of the header field whose value may begin with a plus sign.
const LENGTH: &[u8] = b"content-length:";
/// The place of the minor version in `HTTP/1.1 200 OK`, and of the first digit of the status.
const MINOR_AT: usize = 7;
const STATUS_AT: usize = 9;

/// The part of a response that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// A body, or the time before the first request.
    #[default]
    Body,
    Head(Line),
}

/// The present line of a head.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Whether it is the status line.
    is_first: bool,
    /// Whether the status is 1xx, so that another head follows.
    is_interim: bool,
    /// The number of its bytes so far.
    len: usize,
    /// Whether its bytes so far are the first ones of [`LENGTH`], and then blanks.
    may_be_length: bool,
}

impl Line {
    const FIRST: Self = Self {
        is_first: true,
        is_interim: false,
        len: 0,
        may_be_length: false,
    };
}

/// Repairs the heads of the responses on one HTTP/1 connection.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadRepair(Place);

impl HeadRepair {
    /// Records that a request was sent: a head follows.
    pub(super) fn sent(&mut self) {
        self.0 = Place::Head(Line::FIRST);
    }

    /// Repairs `bytes`, which follow those of the last call.
    pub(super) fn repair(&mut self, bytes: &mut [u8]) {
        for i in 0..bytes.len() {
            let Place::Head(line) = self.0 else { return };
            let next = bytes.get(i + 1).copied();
            self.0 = line.take(&mut bytes[i], next);
        }
    }
}

impl Line {
    /// Takes the next byte, which `next` follows, and returns the place after it.
    fn take(mut self, byte: &mut u8, next: Option<u8>) -> Place {
        match (*byte, next) {
            (b'\n', _) if self.len == 0 && !self.is_first => {
                return if self.is_interim {
                    Place::Head(Self::FIRST)
                } else {
                    Place::Body
                };
            }
            (b'\n', _) => {
                return Place::Head(Self {
                    is_first: self.is_first && self.len == 0,
                    is_interim: self.is_interim,
                    len: 0,
                    may_be_length: true,
                });
            }
            (b'\r', None | Some(b'\n')) => return Place::Head(self),
            (b'\r' | b'\0', _) => *byte = b' ',
            _ => {}
        }
        if self.is_first {
            self.is_interim |= self.len == STATUS_AT && *byte == b'1';
            if self.len == MINOR_AT && *byte == b'0' {
                *byte = b'1';
            }
        } else if self.may_be_length {
            self.may_be_length = match LENGTH.get(self.len) {
                Some(expected) => byte.eq_ignore_ascii_case(expected),
                None if *byte == b'+' => {
                    *byte = b' ';
                    false
                }
                None => matches!(*byte, b' ' | b'\t'),
            };
        }
        self.len += 1;
        Place::Head(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text after the repair, read in pieces that end at `cuts`.
    fn repaired(text: &str, cuts: &[usize]) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut repair = HeadRepair::default();
        repair.sent();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let cut = cut.clamp(from, bytes.len());
            repair.repair(&mut bytes[from..cut]);
            from = cut;
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_hyper_refuses_becomes_a_blank() {
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

    proptest! {
        #[test]
        fn a_valid_head_and_its_body_stay_as_they_are(
            fields in proptest::collection::vec("[a-z-]{1,12}: [ -~]{0,20}\r\n", 0..6),
            body in "[\\x00-\\x7f]{0,40}",
            cuts in proptest::collection::vec(0_usize..300, 0..6),
        ) {
            let fields = fields.concat();
            prop_assume!(!fields.contains("content-length:"));
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}");
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(repaired(&text, &cuts), text);
        }
    }
}
