//! Finds the links of an HTML page, and whether it lets them be followed.
//!
//! The page is read once by a tokenizer, and no tree is built. Addresses become URLs at the end,
//! since a `base` element counts for those before it too.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{self, Read};

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{IoReader, Span, Tokenizer};
use url::Url;

use super::text::Utf8;
use super::urls::page_url;

/// The most links of one page. An index of a large site has some ten thousand.
pub(crate) const LINKS_MAX: usize = 50_000;
/// The longest address, in bytes. A longer one is ignored.
const ADDRESS_MAX: usize = 8 * 1024;
/// The relations of a `link` element that lead to pages. Others are for parts of this page.
const TO_PAGES: [&str; 15] = [
    "alternate",
    "canonical",
    "chapter",
    "contents",
    "first",
    "help",
    "index",
    "last",
    "next",
    "prev",
    "previous",
    "section",
    "start",
    "toc",
    "up",
];

/// The links of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PageLinks {
    /// The URLs of http and https, without fragments, in the order of the page, each once.
    pub(crate) urls: Vec<Url>,
    /// The URL that the page names as its own.
    pub(crate) canonical: Option<Url>,
    /// Whether the page asks robots not to follow its links.
    pub(crate) is_nofollow: bool,
}

/// Reads a page that came from `url`. `token` is the product token that the page may address.
pub(crate) fn read(page: impl Read, url: &Url, token: &str) -> io::Result<PageLinks> {
    let mut found = Finder {
        token,
        tag: Tag::default(),
        base: None,
        addresses: Vec::new(),
        known: HashSet::new(),
        canonical: None,
        is_nofollow: false,
    };
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| {
        found.take(&event);
        None::<Infallible>
    });
    // Scripts and styles have no elements.
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(IoReader::new(Utf8::new(page)), emitter).finish()?;
    let Finder {
        base,
        addresses,
        canonical,
        is_nofollow,
        ..
    } = found;
    let base = base.and_then(|base| url.join(&base).ok());
    let base = base.as_ref().unwrap_or(url);
    let mut known = HashSet::new();
    let urls = addresses
        .iter()
        .filter_map(|address| page_url(base, address));
    Ok(PageLinks {
        urls: urls.filter(|url| known.insert(url.clone())).collect(),
        canonical: canonical.and_then(|address| page_url(base, &address)),
        is_nofollow,
    })
}

/// Returns the URL that a page at `url` names as its own, if only that is followed: the same path
/// with another query, parameters or scheme. Such a page is a view of that one, by a session, an
/// order or a campaign, and its links would come again in each view.
///
/// A page that names another path is followed like any page. Many sites name their start page as
/// the canonical URL of all pages.
pub(crate) fn canonical_only(url: &Url, canonical: Option<Url>) -> Option<Url> {
    let canonical = canonical?;
    let bare = |url: &Url| url.path().split(';').next().map(str::to_owned);
    let is_view = url.host_str() == canonical.host_str() && bare(url) == bare(&canonical);
    let mut own = url.clone();
    own.set_fragment(None);
    (is_view && own != canonical).then_some(canonical)
}

/// Returns whether a list of directives, such as `noindex, nofollow`, forbids to follow links.
fn forbids(directives: &str) -> bool {
    let mut each = directives.split(|char: char| char == ',' || char.is_ascii_whitespace());
    each.any(|each| each.eq_ignore_ascii_case("nofollow") || each.eq_ignore_ascii_case("none"))
}

/// Returns whether the value of an `X-Robots-Tag` forbids `token` to follow links. A value may be
/// for one robot: `otherbot: noindex, nofollow`.
pub(crate) fn header_forbids(value: &str, token: &str) -> bool {
    let (name, rest) = value.split_once(':').unwrap_or(("", value));
    let name = name.trim();
    // A colon is also part of some directives, such as `max-snippet: 20`.
    let is_name = !name.is_empty()
        && !name.contains([',', ' '])
        && name != "unavailable_after"
        && !name.starts_with("max-");
    if is_name {
        (name == "*" || name.eq_ignore_ascii_case(token)) && forbids(rest)
    } else {
        forbids(value)
    }
}

/// The start tag that is being read.
#[derive(Default)]
struct Tag {
    name: Vec<u8>,
    attribute: Vec<u8>,
    address: Option<String>,
    rel: String,
    /// The `name` or `http-equiv` of a `meta`, and its `content`.
    subject: String,
    content: String,
}

struct Finder<'a> {
    token: &'a str,
    tag: Tag,
    base: Option<String>,
    addresses: Vec<String>,
    known: HashSet<String>,
    canonical: Option<String>,
    is_nofollow: bool,
}

impl Finder<'_> {
    fn take(&mut self, event: &CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = Tag {
                    name: name.to_vec(),
                    ..Tag::default()
                };
            }
            CallbackEvent::AttributeName { name } => {
                self.tag.attribute.clear();
                self.tag.attribute.extend_from_slice(name);
            }
            CallbackEvent::AttributeValue { value } if value.len() <= ADDRESS_MAX => {
                self.tag.set(value);
            }
            CallbackEvent::CloseStartTag { .. } => self.tag_ended(),
            CallbackEvent::EndTag { .. } => self.tag = Tag::default(),
            _ => {}
        }
    }

    fn tag_ended(&mut self) {
        let tag = std::mem::take(&mut self.tag);
        let has_rel = |rel: &str| {
            let mut each = tag.rel.split_ascii_whitespace();
            each.any(|each| each.eq_ignore_ascii_case(rel))
        };
        match (&*tag.name, tag.address) {
            (b"base", Some(address)) if self.base.is_none() => self.base = Some(address),
            (b"a" | b"area", Some(address)) if !has_rel("nofollow") => self.add(&address),
            (b"frame" | b"iframe", Some(address)) => self.add(&address),
            (b"link", Some(address)) if !has_rel("stylesheet") && !has_rel("nofollow") => {
                if has_rel("canonical") && self.canonical.is_none() {
                    self.canonical = Some(address.clone());
                }
                if TO_PAGES.iter().any(|rel| has_rel(rel)) {
                    self.add(&address);
                }
            }
            (b"meta", _) => {
                let subject = tag.subject.trim();
                if subject.eq_ignore_ascii_case("refresh") {
                    if let Some(address) = refreshed(&tag.content) {
                        self.add(address);
                    }
                } else if subject.eq_ignore_ascii_case("robots")
                    || subject.eq_ignore_ascii_case(self.token)
                {
                    self.is_nofollow |= forbids(&tag.content);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, address: &str) {
        let address = address.split('#').next().unwrap_or_default();
        let is_page = !address.is_empty() && self.addresses.len() < LINKS_MAX;
        if is_page && self.known.insert(address.to_owned()) {
            self.addresses.push(address.to_owned());
        }
    }
}

impl Tag {
    fn set(&mut self, value: &[u8]) {
        let is_frame = matches!(&*self.name, b"frame" | b"iframe");
        // An entity or a cut may have left a part of a character.
        let text = || String::from_utf8_lossy(value).into_owned();
        match &*self.attribute {
            b"src" if is_frame => self.address = Some(text()),
            b"href" if !is_frame => self.address = Some(text()),
            b"rel" => self.rel = text(),
            b"name" | b"http-equiv" => self.subject = text(),
            b"content" => self.content = text(),
            _ => {}
        }
    }
}

/// Returns the address of a `meta` refresh, such as `5; url=next.html`.
fn refreshed(content: &str) -> Option<&str> {
    let (_, rest) = content.split_once([';', ','])?;
    let rest = rest.trim_start();
    let (name, rest) = rest.split_at_checked(3)?;
    if !name.eq_ignore_ascii_case("url") {
        return None;
    }
    let address = rest.trim_start().strip_prefix('=')?.trim();
    Some(address.trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn links(page: &[u8]) -> PageLinks {
        let url = Url::parse("http://a.example/docs/x.html?y").unwrap();
        read(page, &url, "politely").unwrap()
    }

    fn urls(page: &str) -> Vec<String> {
        links(page.as_bytes())
            .urls
            .into_iter()
            .map(Into::into)
            .collect()
    }

    #[test]
    fn the_links_of_a_page_are_resolved_and_come_once() {
        let page = r##"<!DOCTYPE html><title><a href=no></title><script>"<a href=no>"</script>
            <!-- <a href=no> --><style><a href=no></style>
            <link rel=stylesheet href=s.css><link rel="alternate stylesheet" href=t.css>
            <LINK REL=Next HREF=2.html><link rel=icon href=i.png>
            <meta http-equiv=refresh content="0; URL='refresh.html'">
            <a href=" /top#part ">x</a><a HREF='../up'>y</a><a href="/top">z</a><a href="#self">
            <a href="?q=1&amp;r=2"><a href=/caf&eacute;><area href=//b.example:81/>
            <a href="nf" rel="external NOFOLLOW"><a href=mailto:x@y><a href="javascript:void(0)">
            <a href="http://[bad/"><a name=x><iframe src=frame></iframe><a href="
              /wrapped"##;
        let base = "http://a.example/docs/";
        let expected = [
            format!("{base}2.html"),
            format!("{base}refresh.html"),
            "http://a.example/top".to_owned(),
            "http://a.example/up".to_owned(),
            format!("{base}x.html?q=1&r=2"),
            "http://a.example/caf%C3%A9".to_owned(),
            "http://b.example:81/".to_owned(),
            format!("{base}frame"),
        ];
        assert_eq!(urls(page), expected);
    }

    #[test]
    fn the_first_base_counts_for_the_whole_page() {
        let page = "<a href=1><base target=x><base href=/b/><base href=/c/><a href=2>";
        assert_eq!(urls(page), ["http://a.example/b/1", "http://a.example/b/2"]);
    }

    #[test]
    fn a_page_says_whether_its_links_may_be_followed_and_which_url_is_its_own() {
        for (page, is_nofollow) in [
            ("<meta name=robots content='noindex'>", false),
            ("<meta content='noindex,NoFollow' name=ROBOTS>", true),
            ("<meta name=robots content=none>", true),
            ("<meta name=politely content=nofollow>", true),
            ("<meta name=otherbot content=nofollow>", false),
        ] {
            assert_eq!(links(page.as_bytes()).is_nofollow, is_nofollow, "{page}");
        }
        let found = links(b"<link rel=canonical href=/own><link rel=canonical href=/other>");
        assert_eq!(found.canonical.unwrap().path(), "/own");
        assert_eq!(found.urls.len(), 2);
    }

    #[test]
    fn only_a_view_of_a_page_gives_way_to_its_canonical_url() {
        let parse = |text: &str| Url::parse(text).unwrap();
        let page = parse("http://a.example/x;v=1?sid=1");
        for (canonical, is_only) in [
            ("http://a.example/x", true),
            ("https://a.example/x", true),
            ("http://a.example/x;v=1?sid=1", false),
            ("http://a.example/", false),
            ("http://b.example/x", false),
        ] {
            let found = canonical_only(&page, Some(parse(canonical)));
            assert_eq!(found.is_some(), is_only, "{canonical}");
        }
        assert!(canonical_only(&page, None).is_none());
    }

    #[test]
    fn a_header_may_be_for_one_robot() {
        for (value, forbids) in [
            ("nofollow", true),
            ("noindex, none", true),
            ("max-snippet: 20, nofollow", true),
            ("unavailable_after: 25 Jun 2030 15:00:00 PST", false),
            ("Politely: nofollow", true),
            ("otherbot: nofollow", false),
            ("noindex", false),
            ("", false),
        ] {
            assert_eq!(header_forbids(value, "politely"), forbids, "{value}");
        }
    }

    #[test]
    fn a_page_in_utf_16_or_latin_1_has_its_links() {
        let text = "\u{feff}<a href=/x>é</a>";
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for page in [&wide[..], b"<p>caf\xe9 <a href=/x>\xe9\xff\0</a>"] {
            assert_eq!(links(page).urls[0].as_str(), "http://a.example/x");
        }
        assert_eq!(links(b"<a href=/caf\xe9>").urls[0].path(), "/caf%E9");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            page in "(<(a|base|link|meta|/a|!--|script) ?(href|rel|content|name)?=?['\"]?|&(amp|#x)?;?|[\\x00-\\xff]){0,40}",
        ) {
            let found = links(page.as_bytes());
            prop_assert!(found.urls.iter().all(|url| url.fragment().is_none()));
        }
    }
}
