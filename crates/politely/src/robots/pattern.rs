//! One rule: a path pattern and its matching.
//!
//! Both sides are normalised in the same way before they are compared (RFC 9309, 2.2.2). Escapes of
//! unreserved octets are undone, all others get capital digits, and octets that a URL cannot carry
//! raw are escaped. An escaped reserved octet stays different from the raw one (`%2F` is not `/`).
//! A literal `*` or `$` is escaped on both sides, so in a pattern a raw one is always the special
//! character. Normalisation is idempotent: a stored rule is read back unchanged.

use std::cmp::Reverse;
use std::fmt::Write as _;

const ALLOW: &str = "Allow: ";
const DISALLOW: &str = "Disallow: ";

/// `Allow` or `Disallow`, and a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The normalised line, which a verdict shows. The pattern is its end.
    line: Box<str>,
    /// Bytes of the pattern before its first `*` (or the `$`), where most mismatches show.
    head: usize,
    allow: bool,
}

impl Rule {
    /// Parses a rule. Returns `None` for an empty value, which matches nothing (RFC 9309, 2.2.2).
    pub(super) fn parse(allow: bool, value: &[u8]) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let prefix = if allow { ALLOW } else { DISALLOW };
        // `*` may stand for the first slash, so none is put before it: `*/p` matches `/page`.
        let slash = if matches!(value[0], b'/' | b'*') {
            ""
        } else {
            "/"
        };
        let mut line = String::with_capacity(prefix.len() + slash.len() + value.len());
        line.push_str(prefix);
        line.push_str(slash);
        normalise(&mut line, value, true);
        let pattern = &line[prefix.len()..];
        let head = pattern
            .bytes()
            .position(|byte| matches!(byte, b'*' | b'$'))
            .unwrap_or(pattern.len());
        Some(Self {
            line: line.into(),
            head,
            allow,
        })
    }

    pub(super) fn is_allow(&self) -> bool {
        self.allow
    }

    pub(super) fn line(&self) -> &str {
        &self.line
    }

    /// Returns a sort key that puts the deciding rule first: longest pattern, then `Allow`. The
    /// text makes the order of the file irrelevant, and puts equal rules next to each other.
    pub(super) fn precedence(&self) -> impl Ord + '_ {
        (
            Reverse(self.pattern().len()),
            Reverse(self.allow),
            self.pattern(),
        )
    }

    /// Returns whether the pattern matches this [normalised](normalise_path) path.
    ///
    /// The time is linear in path and pattern. The leftmost place for each piece between stars
    /// leaves the most for the next piece, so no piece is tried twice.
    pub(super) fn matches(&self, path: &str) -> bool {
        let (head, tail) = self.pattern().split_at(self.head);
        let Some(mut rest) = path.strip_prefix(head) else {
            return false;
        };
        let (tail, anchored) = match tail.strip_suffix('$') {
            Some(tail) => (tail, true),
            None => (tail, false),
        };
        let Some(tail) = tail.strip_prefix('*') else {
            return !anchored || rest.is_empty();
        };
        // The end decides in most cases, and needs no search.
        if anchored
            && !tail
                .rsplit('*')
                .next()
                .is_some_and(|last| rest.ends_with(last))
        {
            return false;
        }
        let mut pieces = tail.split('*').peekable();
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

/// Returns a URL's path and query in the form that rules are compared with.
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
    loop {
        let run = input[at..].iter().take_while(|&&byte| is_raw(byte)).count();
        // Raw octets are ASCII: the conversion cannot fail.
        out.push_str(std::str::from_utf8(&input[at..at + run]).unwrap_or_default());
        at += run;
        let Some(&byte) = input.get(at) else { return };
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
            _ => escape(out, byte),
        }
    }
}

/// Octets left as they are: RFC 3986's, but for `*` and `$` (see above) and `'`, which the URL
/// standard escapes in queries, and only there.
fn is_raw(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b':' | b'/'
                | b'?'
                | b'['
                | b']'
                | b'@'
                | b'!'
                | b'&'
                | b'('
                | b')'
                | b'+'
                | b','
                | b';'
                | b'='
        )
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn escape(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "%{byte:02X}");
}
