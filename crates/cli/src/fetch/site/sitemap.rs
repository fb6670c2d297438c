//! Reads sitemaps and feeds: `urlset` and `sitemapindex` of sitemaps.org, RSS, Atom, and text with
//! one URL a line.
//!
//! A file is read from its beginning, and each address is handed on when it is met. So whatever
//! stands before a damage or before a bound is used.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::text::Utf8;

/// The size up to which a sitemap is read, decoded: the largest one that sitemaps.org allows.
pub(crate) const BYTES_MAX: u64 = 50 << 20;
/// The number of addresses up to which a sitemap is read, as sitemaps.org allows.
pub(crate) const URLS_MAX: usize = 50_000;
/// The longest text of an address, in bytes. What follows is dropped, and the URL is refused.
const ADDRESS_MAX: usize = 16 * 1024;

/// An address in a sitemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address<'a> {
    Page(&'a str),
    /// Another sitemap, in an index.
    Sitemap(&'a str),
}

/// The end of reading a sitemap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// It has more than [`BYTES_MAX`] bytes or [`URLS_MAX`] addresses.
    TooLong(&'static str),
    /// The rest cannot be read, and why.
    Damaged(String),
    /// It is no sitemap, and what it is.
    Other(String),
}

/// Reads a sitemap, packed with gzip or not. `take` gets its addresses, as they are written.
pub(crate) fn read(mut file: impl BufRead, take: &mut dyn FnMut(Address<'_>)) -> End {
    // A name tells nothing: files are served packed under any of them.
    match file.fill_buf() {
        Err(why) => End::Damaged(why.to_string()),
        Ok([0x1f, 0x8b, ..]) => read_text(MultiGzDecoder::new(file), take),
        Ok(_) => read_text(file, take),
    }
}

fn read_text(file: impl Read, take: &mut dyn FnMut(Address<'_>)) -> End {
    let mut bounded = Bounded {
        inner: file,
        left: BYTES_MAX,
        is_cut: false,
    };
    let mut text = BufReader::new(Utf8::new(&mut bounded));
    let mut count = 0;
    let mut take = |address: Address<'_>| {
        if count == URLS_MAX {
            return false;
        }
        count += 1;
        take(address);
        true
    };
    let end = match first_byte(&mut text) {
        Err(why) => End::Damaged(why.to_string()),
        Ok(Some(b'<')) => read_xml(text, &mut take),
        Ok(_) => read_lines(text, &mut take),
    };
    if bounded.is_cut {
        return End::TooLong("50 MiB");
    }
    end
}

/// Skips blanks, and returns the byte that follows.
fn first_byte(text: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let seen = text.fill_buf()?;
        let blanks = seen.len() - seen.trim_ascii_start().len();
        if seen.is_empty() || blanks < seen.len() {
            let first = seen.get(blanks).copied();
            text.consume(blanks);
            return Ok(first);
        }
        text.consume(blanks);
    }
}

fn read_lines(text: impl BufRead, take: &mut dyn FnMut(Address<'_>) -> bool) -> End {
    let mut text = text;
    let (mut line, mut is_list) = (Vec::new(), false);
    loop {
        line.clear();
        let read = (&mut text)
            .take(ADDRESS_MAX as u64)
            .read_until(b'\n', &mut line);
        match read {
            Err(why) => return End::Damaged(why.to_string()),
            Ok(0) if is_list || line.is_empty() => return End::Whole,
            Ok(_) => {}
        }
        // The text is UTF-8, but a long line may be cut within a character.
        let address = String::from_utf8_lossy(line.trim_ascii());
        if address.is_empty() {
            continue;
        }
        if !is_list && !address.starts_with("http") {
            return End::Other("its first line is no URL".to_owned());
        }
        is_list = true;
        if !take(Address::Page(&address)) {
            return End::TooLong("50,000 URLs");
        }
    }
}

/// The kind of an XML file, by its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Urls,
    Index,
    /// RSS, of any version.
    Rss,
    Atom,
}

impl Kind {
    fn of_root(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "urlset" => Self::Urls,
            "sitemapindex" => Self::Index,
            "rss" | "rdf" => Self::Rss,
            "feed" => Self::Atom,
            _ => return None,
        })
    }

    /// Returns whether the text of the element `name` in `parent` is an address.
    fn has_address(self, parent: &str, name: &str) -> bool {
        match self {
            Self::Urls => name == "loc" && parent == "url",
            Self::Index => name == "loc" && parent == "sitemap",
            Self::Rss => name == "link" && parent == "item",
            Self::Atom => false,
        }
    }
}

fn read_xml(text: impl BufRead, take: &mut dyn FnMut(Address<'_>) -> bool) -> End {
    let mut xml = Reader::from_reader(text);
    let config = xml.config_mut();
    // Whatever can be read is read.
    config.allow_dangling_amp = true;
    config.allow_unmatched_ends = true;
    config.check_end_names = false;
    config.expand_empty_elements = true;
    let (mut buffer, mut kind) = (Vec::new(), None);
    // The names of the open elements, as far as they matter.
    let mut open: Vec<String> = Vec::new();
    let mut address: Option<String> = None;
    loop {
        buffer.clear();
        let event = match xml.read_event_into(&mut buffer) {
            Ok(event) => event,
            Err(_) if kind.is_none() => return End::Other("it is not XML".to_owned()),
            Err(why) => return End::Damaged(why.to_string()),
        };
        match event {
            Event::Start(tag) => {
                let name = local(&tag);
                let Some(kind) = kind else {
                    kind = Kind::of_root(&name);
                    if kind.is_none() {
                        return End::Other(format!("its root is `{}`", name.escape_debug()));
                    }
                    open.push(name);
                    continue;
                };
                let parent = open.last().map_or("", String::as_str);
                address = kind.has_address(parent, &name).then(String::new);
                if kind == Kind::Atom
                    && name == "link"
                    && parent == "entry"
                    && let Some(href) = atom_link(&tag)
                    && !take(Address::Page(&href))
                {
                    return End::TooLong("50,000 URLs");
                }
                if open.len() < DEPTH_MAX {
                    open.push(name);
                } else {
                    return End::Damaged(format!("more than {DEPTH_MAX} open elements"));
                }
            }
            Event::Text(text) => add(&mut address, &text),
            Event::CData(text) => add(&mut address, &text),
            Event::GeneralRef(reference) => add(&mut address, &resolved(&reference)),
            Event::End(_) => {
                open.pop();
                let Some(text) = address.take() else {
                    continue;
                };
                let text = text.trim();
                let address = match kind {
                    Some(Kind::Index) => Address::Sitemap(text),
                    _ => Address::Page(text),
                };
                if !text.is_empty() && !take(address) {
                    return End::TooLong("50,000 URLs");
                }
            }
            Event::Eof if kind.is_none() => return End::Other("it has no element".to_owned()),
            Event::Eof if !open.is_empty() => {
                return End::Damaged("the file ends within an element".to_owned());
            }
            Event::Eof => return End::Whole,
            _ => {}
        }
    }
}

/// The most open elements. Sitemaps and feeds have a handful.
const DEPTH_MAX: usize = 100;

/// Adds text to an address, up to the bound.
fn add(address: &mut Option<String>, text: &str) {
    if let Some(address) = address {
        let room = ADDRESS_MAX.saturating_sub(address.len());
        address.push_str(&text[..text.floor_char_boundary(room)]);
    }
}

/// Returns the name of an element without its namespace.
fn local(tag: &BytesStart<'_>) -> String {
    let name = tag.name();
    let name: &str = name.as_ref();
    name.rsplit(':').next().unwrap_or(name).to_owned()
}

/// Returns the address of a `link` of Atom, if it leads to the page of its entry.
fn atom_link<'a>(tag: &'a BytesStart<'_>) -> Option<Cow<'a, str>> {
    let mut href = None;
    for attribute in tag.attributes().with_checks(false).flatten() {
        let name: &str = attribute.key.as_ref();
        match name {
            "rel" if !attribute.value.trim().eq_ignore_ascii_case("alternate") => return None,
            "href" => href = Some(attribute.value),
            _ => {}
        }
    }
    let href = href?;
    let text = match quick_xml::escape::unescape(&href) {
        Ok(text) => text.trim().to_owned(),
        Err(_) => href.trim().to_owned(),
    };
    (!text.is_empty()).then(|| text.chars().take(ADDRESS_MAX).collect())
}

/// Returns the text of a reference like `&amp;`. An unknown one stays as it is.
fn resolved(reference: &BytesRef<'_>) -> String {
    let written = format!("&{};", &**reference);
    quick_xml::escape::unescape(&written).map_or(written.clone(), Cow::into_owned)
}

/// A reader that ends after a number of bytes.
struct Bounded<R> {
    inner: R,
    left: u64,
    /// Whether there was more.
    is_cut: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.is_cut |= self.inner.read(&mut [0])? > 0;
            return Ok(0);
        }
        let len = out
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut out[..len])?;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn addresses(file: &[u8]) -> (Vec<String>, End) {
        let mut found = Vec::new();
        let end = read(file, &mut |address| {
            found.push(match address {
                Address::Page(url) => url.to_owned(),
                Address::Sitemap(url) => format!("sitemap {url}"),
            });
        });
        (found, end)
    }

    fn packed(file: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(file).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn the_addresses_of_each_kind_are_found() {
        let urls = r#"<?xml version="1.0"?><!-- made by hand -->
            <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="x">
            <url><loc> http://a/?x=1&amp;y=2 </loc><image:image><image:loc>http://a/i.png</image:loc>
            </image:image></url><url><loc><![CDATA[http://a/b]]></loc></url></urlset>"#;
        let index = "<s:sitemapindex xmlns:s='x'><s:sitemap><s:loc>http://a/1.xml.gz</s:loc>\
            <s:lastmod>2026-01-01</s:lastmod></s:sitemap></s:sitemapindex>";
        let rss = "<rss version='2.0'><channel><link>http://a/</link><item><title>R&D &eacute;</title>\
            <link>http://a/1</link><guid>http://a/x</guid></item></channel></rss>";
        let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><link href='http://a/'/><entry>\
            <link rel='edit' href='http://a/edit'/><link rel=\"alternate\" href=\"http://a/1?x&amp;y\"/>\
            <link href='http://a/2'/></entry></feed>";
        for (file, found) in [
            (urls, &["http://a/?x=1&y=2", "http://a/b"][..]),
            (index, &["sitemap http://a/1.xml.gz"]),
            (rss, &["http://a/1"]),
            (atom, &["http://a/1?x&y", "http://a/2"]),
            (
                "\u{feff}http://a/1\r\n\n http://a/2 ",
                &["http://a/1", "http://a/2"],
            ),
            ("<urlset/>", &[]),
            ("", &[]),
        ] {
            let whole = (
                found.iter().map(|url| (*url).to_owned()).collect(),
                End::Whole,
            );
            assert_eq!(addresses(file.as_bytes()), whole);
            assert_eq!(addresses(&packed(file.as_bytes())), whole, "packed");
            let wide: Vec<u8> = format!("\u{feff}{}", file.trim_start_matches('\u{feff}'))
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect();
            assert_eq!(addresses(&wide), whole, "UTF-16");
        }
    }

    #[test]
    fn what_stands_before_a_damage_is_used() {
        let good = "<urlset><url><loc>http://a/1</loc></url><url><loc>http://a/2</loc></url>";
        for damage in [
            "<url><loc>http://a/3",
            "<url <<",
            "</urlset",
            "<![CDATA[x",
            "",
        ] {
            let (found, end) = addresses(format!("{good}{damage}").as_bytes());
            assert_eq!(found, ["http://a/1", "http://a/2"], "{damage}");
            assert!(matches!(end, End::Damaged(_)), "{damage}: {end:?}");
        }
        let packed = packed(&format!("{good}{}", " ".repeat(50_000)).into_bytes());
        let (found, end) = addresses(&packed[..packed.len() - 9]);
        assert_eq!(found.len(), 2);
        assert!(matches!(end, End::Damaged(_)), "{end:?}");
    }

    #[test]
    fn a_file_of_another_kind_is_told() {
        for (file, why) in [
            (
                "<!DOCTYPE html><html><a href='http://a/'>",
                "its root is `html`",
            ),
            ("{\"a\": 1}", "its first line is no URL"),
            ("<", "it is not XML"),
            ("<!-- -->", "it has no element"),
        ] {
            assert_eq!(
                addresses(file.as_bytes()),
                (vec![], End::Other(why.to_owned()))
            );
        }
    }

    #[test]
    fn a_file_beyond_a_bound_is_read_up_to_it() {
        let lines = "http://a/\n".repeat(URLS_MAX + 1);
        let (found, end) = addresses(lines.as_bytes());
        assert_eq!((found.len(), end), (URLS_MAX, End::TooLong("50,000 URLs")));
        let (found, end) = addresses(&lines.as_bytes()[..lines.len() - 10]);
        assert_eq!((found.len(), end), (URLS_MAX, End::Whole));
        let long = format!("http://a/1\n{}", " ".repeat(BYTES_MAX as usize));
        let (found, end) = addresses(&packed(long.as_bytes()));
        assert_eq!((found.len(), end), (1, End::TooLong("50 MiB")));
    }

    #[test]
    fn latin_1_does_not_end_a_feed() {
        let feed = b"<?xml version='1.0' encoding='ISO-8859-1'?><rss><item><title>caf\xe9</title>\
            <link>http://a/caf\xe9</link></item></rss>";
        assert_eq!(
            addresses(feed),
            (vec!["http://a/caf%E9".to_owned()], End::Whole)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in "(<(urlset|url|loc|/loc|rss|item|link|feed|entry|link href='x'|!\\[CDATA\\[)>?|&(amp|#x41|#0)?;?|[\\x00-\\xff]){0,40}",
        ) {
            addresses(bytes.as_bytes());
        }
    }
}
