//! Reads the head of a response, and says how to repair it. See [`super::repair`].

use super::repair::Edit;

/// Fields whose values matter. A name ends with its colon.
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const CHUNKED: &[u8] = b"chunked";
/// The place of the minor version in `HTTP/1.1 200 OK`, and of the first digit of the status.
const MINOR_AT: usize = 7;
const STATUS_AT: usize = 9;

/// A head whose end did not come yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Whether the status is 1xx, so that another head follows.
    is_interim: bool,
    /// Whether the last transfer coding is `chunked`.
    is_chunked: bool,
    line: Line,
    /// The number of bytes of the present line so far.
    len: usize,
}

/// The present line of a head.
#[derive(Clone, Copy, Debug)]
enum Line {
    Status,
    /// A field whose bytes so far are the first ones of this name.
    Named(&'static [u8]),
    /// Before the digits of a length.
    Length,
    /// Within an element of the list of transfer codings.
    Coding {
        /// How many bytes of [`CHUNKED`] it has so far, or `None` if it is another coding.
        matched: Option<usize>,
    },
    /// A field that does not matter.
    Other,
}

/// The part of a response that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Head,
    Chunks,
    Body,
}

impl Head {
    pub(super) const BEGIN: Self = Self {
        is_interim: false,
        is_chunked: false,
        line: Line::Status,
        len: 0,
    };

    /// Takes the next byte, which `rest` follows. Returns what becomes of it, and what follows the
    /// head if this byte ends it.
    pub(super) fn take(&mut self, byte: &mut u8, rest: &[u8]) -> (Edit, Option<After>) {
        match (*byte, rest.first()) {
            (b'\n', _) => return (Edit::Keep, self.end_line()),
            (b'\r', None | Some(b'\n')) => return (Edit::Keep, None),
            (b'\r' | b'\0', _) => *byte = b' ',
            _ => {}
        }
        if matches!(self.line, Line::Status) && is_blank(*byte) {
            match self.len {
                STATUS_AT => return (Edit::Drop, None),
                _ => *byte = b' ',
            }
        }
        self.take_in_line(byte, rest);
        self.len += 1;
        (Edit::Keep, None)
    }

    fn end_line(&mut self) -> Option<After> {
        match self.line {
            // Blank lines before a status line.
            Line::Status if self.len == 0 => return None,
            Line::Coding { matched } => self.is_chunked = matched == Some(CHUNKED.len()),
            Line::Status | Line::Named(_) | Line::Length | Line::Other if self.len == 0 => {
                return Some(match (self.is_interim, self.is_chunked) {
                    (true, _) => After::Head,
                    (false, true) => After::Chunks,
                    (false, false) => After::Body,
                });
            }
            _ => {}
        }
        (self.line, self.len) = (Line::Other, 0);
        None
    }

    fn take_in_line(&mut self, byte: &mut u8, rest: &[u8]) {
        if self.len == 0 && !matches!(self.line, Line::Status) {
            self.line = match byte.to_ascii_lowercase() {
                b'c' => Line::Named(LENGTH),
                b't' => Line::Named(CODING),
                _ => Line::Other,
            };
        }
        match &mut self.line {
            Line::Status => {
                self.is_interim |= self.len == STATUS_AT && *byte == b'1';
                if self.len == MINOR_AT && *byte == b'0' {
                    *byte = b'1';
                }
            }
            Line::Named(name) if !byte.eq_ignore_ascii_case(&name[self.len]) => {
                self.line = Line::Other;
            }
            Line::Named(name) if self.len + 1 == name.len() => {
                self.line = match *name {
                    LENGTH => Line::Length,
                    _ => Line::Coding { matched: Some(0) },
                };
            }
            Line::Named(_) | Line::Other => {}
            Line::Length => {
                if !is_blank(*byte) {
                    self.line = Line::Other;
                }
                if *byte == b'+' {
                    *byte = b' ';
                }
            }
            Line::Coding { matched } => {
                if *byte == b',' && is_empty_to_its_end(rest) {
                    *byte = b' ';
                } else {
                    *matched = matched_with(*matched, *byte);
                }
            }
        }
    }
}

/// Returns how many bytes of [`CHUNKED`] an element has after `byte`.
fn matched_with(matched: Option<usize>, byte: u8) -> Option<usize> {
    match matched {
        _ if byte == b',' => Some(0),
        Some(0 | 7) if is_blank(byte) => matched,
        Some(n) if CHUNKED.get(n)?.eq_ignore_ascii_case(&byte) => Some(n + 1),
        _ => None,
    }
}

/// Returns whether the list that `rest` continues has no further element on its line.
fn is_empty_to_its_end(rest: &[u8]) -> bool {
    let end = rest.iter().position(|byte| *byte == b'\n');
    end.is_some_and(|end| {
        let mut list = rest[..end].iter();
        list.all(|byte| matches!(byte, b' ' | b'\t' | b',' | b'\r'))
    })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
