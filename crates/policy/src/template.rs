//! Names of keys with places that a request fills: `github/{token_name}`.

use std::fmt::{self, Write as _};

use http::Method;
use politely_core::key::{Key, TEXT_LEN_MAX};
use url::Url;

/// The places that a request fills by itself.
const HOST: &str = "host";
const SITE: &str = "site";
/// The place that the name of a worker fills.
pub const CLIENT: &str = "client";
/// The most characters of a label's name.
const LABEL_MAX: usize = 32;
/// The most characters of a label's value.
const VALUE_MAX: usize = 128;
/// The length of the hash at the end of a name that is too long, with its hyphen.
const HASH_LEN: usize = 17;

/// The name of a key, with places in braces.
///
/// `{host}` and `{site}` come from the request. Other places are labels that the caller brings;
/// `{client}` is the name of the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
    /// The key, if there is no place.
    fixed: Option<Key>,
    /// The characters between places. In labels they are percent-encoded.
    separators: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Host,
    Site,
    Label(String),
}

/// A request, as far as it fills the places of a [`KeyTemplate`].
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The URL of the request, if it names one.
    pub url: Option<&'a Url>,
    /// The first key of the request. It stands for the host if there is no URL.
    pub key: &'a Key,
    /// The method of the request.
    pub method: &'a Method,
    /// Returns the value of a label.
    pub labels: &'a dyn Fn(&str) -> Option<&'a str>,
}

impl KeyTemplate {
    /// Reads a name with places.
    ///
    /// # Errors
    /// A description of the mistake.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a brace is not closed")?;
            push_text(&mut parts, before)?;
            if before.is_empty()
                && parts
                    .last()
                    .is_some_and(|last| !matches!(last, Part::Text(_)))
            {
                return Err(format!(
                    "put a `/` between `{{{name}}}` and the place before it"
                ));
            }
            parts.push(match name {
                HOST => Part::Host,
                SITE => Part::Site,
                name if is_label(name) => Part::Label(name.to_owned()),
                name => return Err(not_a_label(name)),
            });
            rest = after;
        }
        push_text(&mut parts, rest)?;
        let literal: String = parts.iter().map(Part::sample).collect();
        let key = Key::custom(&literal).map_err(|why| why.to_string())?;
        let is_fixed = parts.iter().all(|part| matches!(part, Part::Text(_)));
        let separators = separators(&parts);
        Ok(Self {
            text: text.to_owned(),
            parts,
            fixed: is_fixed.then_some(key),
            separators,
        })
    }

    /// Returns the labels that a caller must bring.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Label(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns the key of a request. A label that the caller does not bring counts as empty.
    pub fn fill(&self, caller: &Caller<'_>) -> Key {
        if let Some(key) = &self.fixed {
            return key.clone();
        }
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Label(label) => {
                    name.push_str(&self.escaped((caller.labels)(label).unwrap_or_default()));
                }
                Part::Host => name.push_str(host_of(caller)),
                Part::Site => match Key::site(host_of(caller)) {
                    Ok(site) => name.push_str(site.as_str().trim_start_matches("site/")),
                    Err(_) => name.push_str(host_of(caller)),
                },
            }
        }
        // A key has no invisible characters, so those of a value are escaped.
        let escaped = || shortened(&name.escape_debug().to_string());
        let key = Key::custom(&shortened(&name)).or_else(|_| Key::custom(&escaped()));
        key.unwrap_or_else(|_| caller.key.clone())
    }

    /// Returns a label's value without the characters that separate it from other values, so that
    /// different labels give different keys. They are percent-encoded, as `%`, `/` and `\` are.
    fn escaped(&self, value: &str) -> String {
        let mut escaped = String::with_capacity(value.len());
        for char in value.chars() {
            if matches!(char, '%' | '/' | '\\') || self.separators.contains(char) {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    // Writing to a `String` cannot fail.
                    _ = write!(escaped, "%{byte:02X}");
                }
            } else {
                escaped.push(char);
            }
        }
        escaped
    }

    /// Replaces the labels whose values are known.
    pub(super) fn with_labels(&self, value: &dyn Fn(&str) -> Option<String>) -> Self {
        let parts = self.parts.iter().map(|part| match part {
            Part::Label(name) => match value(name) {
                Some(value) => Part::Text(self.escaped(&value)),
                None => part.clone(),
            },
            part => part.clone(),
        });
        let parts: Vec<Part> = parts.collect();
        let is_fixed = parts.iter().all(|part| matches!(part, Part::Text(_)));
        let text: String = parts.iter().map(ToString::to_string).collect();
        let fixed = Key::custom(&shortened(&text)).ok().filter(|_| is_fixed);
        Self {
            text,
            parts,
            fixed,
            separators: self.separators.clone(),
        }
    }
}

impl Part {
    /// Returns a text that this part can stand for.
    fn sample(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "x",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Host => write!(f, "{{{HOST}}}"),
            Self::Site => write!(f, "{{{SITE}}}"),
            Self::Label(name) => write!(f, "{{{name}}}"),
        }
    }
}

/// Writes the key's name, with its places.
impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom/{}", self.text)
    }
}

/// Returns the characters that a label's value must not have: those of the texts of a name with
/// several places.
fn separators(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Host | Part::Site | Part::Label(_) => None,
    });
    let places = parts.len() - texts.clone().count();
    texts.filter(|_| places > 1).collect()
}

fn push_text(parts: &mut Vec<Part>, text: &str) -> Result<(), String> {
    if text.contains('}') {
        return Err("a brace is not opened".to_owned());
    }
    if !text.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
    Ok(())
}

/// Returns whether a text can be the name of a label: 1 to 32 lowercase letters, digits and `_`.
pub(super) fn is_label(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=LABEL_MAX).contains(&name.len()) && name.bytes().all(is_word)
}

pub(super) fn not_a_label(name: &str) -> String {
    let shown: String = name.chars().take(2 * LABEL_MAX).collect();
    let shown = shown.escape_debug();
    format!("`{shown}` is no label; use 1 to 32 lowercase letters, digits and `_`")
}

/// Returns whether a text can be the value of a label.
pub fn is_label_value(text: &str) -> bool {
    (1..=VALUE_MAX).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// Returns whether a caller may bring a label of this name. `host`, `site` and `client` are known
/// from the request.
pub fn may_bring(name: &str) -> bool {
    is_label(name) && ![HOST, SITE, CLIENT].contains(&name)
}

/// Returns the host of a request: that of its URL, or else the text of its key.
fn host_of<'a>(caller: &Caller<'a>) -> &'a str {
    let host = caller.url.and_then(Url::host_str);
    host.map_or_else(
        || {
            let name = caller.key.as_str();
            let host = name.rsplit_once('/').map_or(name, |(_, host)| host);
            match host.rsplit_once(':') {
                Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
                _ => host,
            }
        },
        |host| host.trim_end_matches('.'),
    )
}

/// Returns a name of at most 253 bytes. The end of a longer one becomes its hash (FNV-1a).
fn shortened(name: &str) -> String {
    if name.len() <= TEXT_LEN_MAX {
        return name.to_owned();
    }
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let mut end = TEXT_LEN_MAX - HASH_LEN;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash:016x}", &name[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(text: &str, url: Option<&str>, key: &str, labels: &[(&str, &str)]) -> String {
        let url = url.map(|url| url.parse().unwrap());
        let key = Key::parse(key).unwrap();
        let value = |name: &str| {
            let found = labels.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        let caller = Caller {
            url: url.as_ref(),
            key: &key,
            method: &Method::GET,
            labels: &value,
        };
        let template = KeyTemplate::read(text).unwrap();
        template.fill(&caller).to_string()
    }

    #[test]
    fn places_are_filled_from_the_request() {
        let url = Some("https://API.a.example.co.uk.:8080/x");
        let labels = [("client", "w1"), ("token_name", "ci/7")];
        for (text, filled) in [
            ("example", "custom/example"),
            ("github/{token_name}", "custom/github/ci%2F7"),
            ("consumer/{client}", "custom/consumer/w1"),
            ("{site}:{host}", "custom/example.co.uk:api.a.example.co.uk"),
            ("a/{unknown}/b", "custom/a//b"),
        ] {
            assert_eq!(fill(text, url, "x.example", &labels), filled);
        }
        for (key, filled) in [
            ("a.example.com:80", "custom/example.com a.example.com"),
            ("[2001:db8::1]", "custom/[2001:db8::1] [2001:db8::1]"),
            ("site/example.com", "custom/example.com example.com"),
            ("egress/p/a.example.com", "custom/example.com a.example.com"),
        ] {
            assert_eq!(fill("{site} {host}", None, key, &[]), filled);
        }
    }

    proptest! {
        #[test]
        fn different_labels_give_different_keys(
            template in prop::sample::select(vec!["{a}/{b}", "t-{a}-{b}", "{a} and {b}", "{b}%{a}", "{a}.{b}"]),
            one in ("[ab/%\\\\ .-]{1,4}", "[ab/%\\\\ .-]{1,4}"),
            other in ("[ab/%\\\\ .-]{1,4}", "[ab/%\\\\ .-]{1,4}"),
        ) {
            let name = |(a, b): &(String, String)| {
                let filled = fill(template, None, "a.example", &[("a", a), ("b", b)]);
                let template = KeyTemplate::read(template).unwrap();
                let values = |name: &str| Some(if name == "a" { a.clone() } else { b.clone() });
                let fixed = template.with_labels(&values).fixed.unwrap().to_string();
                assert_eq!(fixed, filled);
                filled
            };
            prop_assert_eq!(one == other, name(&one) == name(&other));
        }
    }

    #[test]
    fn long_names_stay_different() {
        let long = "x".repeat(300);
        let (a, b) = (format!("{long}a"), format!("{long}b"));
        let name = |value: &str| fill("c/{client}", None, "a.example", &[("client", value)]);
        assert_ne!(name(&a), name(&b));
        assert_eq!(name(&a).len(), "custom/".len() + TEXT_LEN_MAX);
    }

    #[test]
    fn a_wrong_name_is_one_line() {
        for text in ["", "a{b", "a}b", "{}", "{Token}", "{a b}", "a\nb", "{{x}}"] {
            let why = KeyTemplate::read(text).unwrap_err();
            assert_eq!(why.lines().count(), 1, "{text}: {why}");
        }
    }
}
