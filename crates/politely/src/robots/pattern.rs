//! One rule: a path pattern, and whether it matches.
//!
//! Both sides are normalised the same way before they are compared (RFC 9309, 2.2.2): escapes of
//! unreserved octets are undone, all others get capital digits, and what no URL may carry raw is escaped.
//! An escaped reserved octet stays apart from the raw one (`%2F` is no `/`). A `*` or a `$` that is meant
//! literally is escaped on both sides, so in a pattern a raw one is always the special character.
//! Normalising twice changes nothing: a stored rule is read back as itself.

use std::cmp::Reverse;
use std::fmt::Write as _;

const ALLOW: &str = "Allow: ";
const DISALLOW: &str = "Disallow: ";

/// `Allow` or `Disallow`, and a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The normalised line: what a verdict shows and a record stores. The pattern is its end.
    line: Box<str>,
    allow: bool,
}

impl Rule {
    /// `None` for an empty value: it matches nothing (RFC 9309, 2.2.2).
    pub(super) fn parse(allow: bool, value: &[u8]) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let mut line = String::with_capacity(DISALLOW.len() + 1 + value.len());
        line.push_str(if allow { ALLOW } else { DISALLOW });
        // `*` may stand for the first slash, so none is put before it: `*/p` matches `/page`.
        if !matches!(value[0], b'/' | b'*') {
            line.push('/');
        }
        normalise(&mut line, value, true);
        Some(Self {
            line: line.into(),
            allow,
        })
    }

    pub(super) fn is_allow(&self) -> bool {
        self.allow
    }

    pub(super) fn line(&self) -> &str {
        &self.line
    }

    /// Sorts the rule that decides to the front: longest pattern, then `Allow`. The text makes the order
    /// of the file irrelevant, and equal rules neighbours.
    pub(super) fn precedence(&self) -> impl Ord + '_ {
        (
            Reverse(self.pattern().len()),
            Reverse(self.allow),
            self.pattern(),
        )
    }

    /// Does the pattern match this [normalised](normalise_path) path?
    ///
    /// Linear in path and pattern: the leftmost place for each piece between stars leaves the most for
    /// the next, so nothing is ever tried twice.
    pub(super) fn matches(&self, path: &str) -> bool {
        let (pattern, anchored) = match self.pattern().strip_suffix('$') {
            Some(pattern) => (pattern, true),
            None => (self.pattern(), false),
        };
        let mut pieces = pattern.split('*');
        let Some(mut rest) = path.strip_prefix(pieces.next().unwrap_or_default()) else {
            return false;
        };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return !anchored || rest.is_empty();
        }
        while let Some(piece) = pieces.next() {
            if anchored && pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            let Some(at) = rest.find(piece) else {
                return false;
            };
            rest = &rest[at + piece.len()..];
        }
        true
    }

    fn pattern(&self) -> &str {
        &self.line[if self.allow {
            ALLOW.len()
        } else {
            DISALLOW.len()
        }..]
    }
}

/// A URL's path and query as rules are compared with it.
pub(super) fn normalise_path(path: &str) -> String {
    let mut normal = String::with_capacity(path.len() + 16);
    if !path.starts_with('/') {
        normal.push('/');
    }
    normalise(&mut normal, path.as_bytes(), false);
    normal
}

fn normalise(out: &mut String, input: &[u8], special: bool) {
    let mut at = 0;
    while let Some(&byte) = input.get(at) {
        at += 1;
        match byte {
            b'%' => match input.get(at..at + 2).and_then(hex) {
                Some(octet) => {
                    at += 2;
                    match octet {
                        _ if is_unreserved(octet) => out.push(char::from(octet)),
                        _ => escape(out, octet),
                    }
                }
                None => escape(out, b'%'),
            },
            b'*' if special => out.push('*'),
            b'$' if special && at == input.len() => out.push('$'),
            _ if is_raw(byte) => out.push(char::from(byte)),
            _ => escape(out, byte),
        }
    }
}

/// Octets left as they are: RFC 3986's, but for `*` and `$` (see above) and `'`, which the URL standard
/// escapes in queries, and only there.
fn is_raw(byte: u8) -> bool {
    is_unreserved(byte) || b":/?[]@!&()+,;=".contains(&byte)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn escape(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "%{byte:02X}");
}
