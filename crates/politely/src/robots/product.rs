//! The product token of a `User-Agent` value: the name of a crawler in robots.txt.

/// Products of browsers and their engines, which browser-like values contain beside the crawler's
/// own name.
const OF_BROWSERS: [&str; 24] = [
    "AppleWebKit",
    "Chrome",
    "Chromium",
    "compatible",
    "CriOS",
    "Edg",
    "EdgA",
    "Edge",
    "EdgiOS",
    "Firefox",
    "FxiOS",
    "Gecko",
    "HeadlessChrome",
    "KHTML",
    "Konqueror",
    "Mobile",
    "Mozilla",
    "MSIE",
    "Opera",
    "OPR",
    "Safari",
    "Trident",
    "Version",
    "like",
];

/// Returns the product token of a `User-Agent` value; empty if it names none.
///
/// 1. It is the first product, without its version: `foobot` of `foobot/1.2 (+https://…)`.
/// 2. If that is `Mozilla`, the value is like a browser's. The token is then the element after
///    `compatible` in a comment: `ExampleBot` of
///    `Mozilla/5.0 (compatible; ExampleBot/1.2; +https://example.com/bot)`.
/// 3. Else it is the first element of a comment that also holds an address, a `+` or an `http`:
///    `Applebot` of `Mozilla/5.0 (…) Safari/605.1 (Applebot/0.1; +http://…)`.
/// 4. Else it is the first product that is not a browser's, and else `Mozilla`.
///
/// Elements and products of browsers and their engines are passed over in 2 to 4. The token holds
/// ASCII letters and digits, `-`, `_`, `.` and all bytes beyond ASCII: RFC 9309 allows fewer, but
/// names in use have them (`MJ12bot`).
pub fn product_token(user_agent: &str) -> &str {
    let token = token_of(user_agent.as_bytes());
    // A token ends before an ASCII byte or at the end, so it is whole characters.
    std::str::from_utf8(token).unwrap_or_default()
}

/// Returns the [`product_token`] of bytes that may not be UTF-8.
pub(super) fn token_of(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let first = leading(value);
    if !first.eq_ignore_ascii_case(b"mozilla") {
        return first;
    }
    let comments = || Parts(value).filter_map(Part::comment);
    let after_compatible = comments().find_map(|comment| {
        let mut elements = elements(comment).skip_while(|element| !is_compatible(element));
        elements.next();
        elements.map(leading).find(|token| is_own(token))
    });
    let beside_address = || {
        let mut comments = comments().filter(|comment| elements(comment).any(is_address));
        comments.find_map(|comment| elements(comment).map(leading).find(|token| is_own(token)))
    };
    let product = || {
        let mut products = Parts(value).filter_map(Part::product);
        products.find(|token| is_own(token))
    };
    after_compatible
        .or_else(beside_address)
        .or_else(product)
        .unwrap_or(first)
}

/// Returns the token at the beginning of `text`. Only this part of a `User-agent` line in a
/// robots.txt counts.
pub(super) fn leading(text: &[u8]) -> &[u8] {
    let is_of_token =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte) || *byte >= 0x80;
    let end = text.iter().position(|byte| !is_of_token(byte));
    &text[..end.unwrap_or(text.len())]
}

/// Returns whether `token` may be a crawler's name.
fn is_own(token: &[u8]) -> bool {
    let is_of_browser = |name: &&str| token.eq_ignore_ascii_case(name.as_bytes());
    !token.is_empty() && !OF_BROWSERS.iter().any(is_of_browser) && !is_address(token)
}

fn is_compatible(element: &[u8]) -> bool {
    element.eq_ignore_ascii_case(b"compatible")
}

fn is_address(element: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        let start = element.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    begins(b"+") || begins(b"http:") || begins(b"https:") || begins(b"www.")
}

/// Returns the elements of a comment, which semicolons and commas separate.
fn elements(comment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = comment.split(|byte| matches!(byte, b';' | b','));
    elements
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

enum Part<'v> {
    Product(&'v [u8]),
    Comment(&'v [u8]),
}

impl<'v> Part<'v> {
    fn comment(self) -> Option<&'v [u8]> {
        match self {
            Self::Comment(comment) => Some(comment),
            Self::Product(_) => None,
        }
    }

    fn product(self) -> Option<&'v [u8]> {
        match self {
            Self::Product(token) => Some(token),
            Self::Comment(_) => None,
        }
    }
}

/// The products and comments of a value (RFC 9110, section 10.1.5), in order. A comment within a
/// comment is a part of it.
struct Parts<'v>(&'v [u8]);

impl<'v> Iterator for Parts<'v> {
    type Item = Part<'v>;

    fn next(&mut self) -> Option<Part<'v>> {
        let rest = self.0.trim_ascii_start();
        if let Some(inside) = rest.strip_prefix(b"(") {
            let mut depth = 1_u32;
            let end = inside.iter().position(|byte| {
                match byte {
                    b'(' => depth = depth.saturating_add(1),
                    b')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            let end = end.unwrap_or(inside.len());
            self.0 = inside.get(end + 1..).unwrap_or_default();
            return Some(Part::Comment(&inside[..end]));
        }
        if rest.is_empty() {
            return None;
        }
        let end = rest
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || *byte == b'(');
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = rest;
        Some(Part::Product(leading(word)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_in_use_name_their_crawler() {
        let safari = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.1 Safari/605.1.15";
        let chrome = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ";
        for (value, token) in [
            ("foobot", "foobot"),
            ("foobot/1.2 (+https://example.com)", "foobot"),
            ("  foobot/1.2", "foobot"),
            (
                "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)",
                "DuckDuckBot",
            ),
            ("archive.org_bot", "archive.org_bot"),
            (
                "Mozilla/5.0 (compatible; ExampleBot/1.2; +https://example.com/bot)",
                "ExampleBot",
            ),
            ("mozilla/5.0 (Compatible;ExampleBot)", "ExampleBot"),
            (
                "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
                "archive.org_bot",
            ),
            (
                "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)",
                "MJ12bot",
            ),
            ("Mozilla/5.0 (compatible, ExampleBot/1.2)", "ExampleBot"),
            (
                "Mozilla/5.0 (compatible; MSIE 9.0; ExampleBot 2.0)",
                "ExampleBot",
            ),
            (
                &format!("{chrome}GPTBot/1.2; +https://openai.com/gptbot)"),
                "GPTBot",
            ),
            (
                &format!(
                    "{chrome}bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/103.0.5060.134 Safari/537.36"
                ),
                "bingbot",
            ),
            (
                &format!("{safari} (Applebot/0.1; +http://www.apple.com/go/applebot)"),
                "Applebot",
            ),
            (
                &format!("{safari} (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"),
                "Googlebot",
            ),
            (&format!("{safari} ExampleBot/2.0"), "ExampleBot"),
            ("Mozilla/5.0 (Windows; (a; b) x) ExampleBot", "ExampleBot"),
            (safari, "Mozilla"),
            ("Mozilla/5.0 (compatible; MSIE 9.0)", "Mozilla"),
            ("Mozilla/5.0 (compatible", "Mozilla"),
            ("Mozilla/5.0 (compatible; +https://example.com)", "Mozilla"),
            ("Mozilla", "Mozilla"),
            ("", ""),
            ("*", ""),
            ("(comment) foobot", ""),
        ] {
            assert_eq!(product_token(value), token, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_its_own_token(value in "(Mozilla/5.0 )?[a-zA-Z/();,+ .é\\PC]{0,60}") {
            let token = product_token(&value);
            prop_assert_eq!(product_token(token), token);
            prop_assert!(value.contains(token));
        }
    }
}
