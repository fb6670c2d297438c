//! Reads URLs from arguments, a file or standard input, one per line, and never holds all of them
//! in memory.
//!
//! The length of a line is bounded. So a binary file that is given by mistake costs neither memory
//! nor an endless wait for its first newline.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use url::Url;

use crate::exit::{Wrong, url_words};

/// The longest line, in bytes. RFC 9110 section 4.1 asks for support of URLs of 8,000; servers
/// refuse far earlier.
pub(crate) const LINE_MAX: usize = 64 * 1024;

/// The byte order mark, which some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A file with a zero among this many first bytes is not a list.
const TEXT_LOOKED_AT: usize = 1024;

/// The sources in order: arguments, then the file or standard input.
pub(crate) struct Sources(Vec<Source>);

struct Source {
    /// The name in error messages: `urls.txt`, `standard input`, `arguments`.
    name: String,
    /// The file's path, if the source is a file.
    file: Option<PathBuf>,
    reader: Reader,
    /// The number of lines read so far.
    line: u64,
}

/// A buffer whose content can be inspected without a read.
struct Reader(BufReader<Box<dyn Read + Send>>);

impl Reader {
    fn new(reader: impl Read + Send + 'static) -> Self {
        Self(BufReader::with_capacity(LINE_MAX, Box::new(reader)))
    }

    /// Returns whether it begins with a byte that no text contains.
    fn is_binary(&mut self) -> bool {
        let begin = self.0.fill_buf().unwrap_or_default();
        begin.iter().take(TEXT_LOOKED_AT).any(|byte| *byte == 0)
    }

    fn has_line(&self) -> bool {
        self.0.buffer().contains(&b'\n')
    }
}

/// The source and number of a line.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) source: String,
    pub(crate) line: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source, self.line)
    }
}

impl Sources {
    /// Opens the sources of the command line, or standard input if there is no URL at all.
    pub(crate) fn open(urls: &[String], file: Option<&Path>) -> Result<Self, Wrong> {
        let mut sources = Vec::new();
        let mut stdin_named = false;
        let mut given = String::new();
        for url in urls {
            if url == "-" {
                stdin_named = true;
            } else if url.trim().is_empty() {
                return Err(Wrong(
                    "an argument is empty where a URL should be".to_owned(),
                ));
            } else {
                given.push_str(&url.replace(['\n', '\r'], " "));
                given.push('\n');
            }
        }
        if !given.is_empty() {
            sources.extend(Self::of_bytes("arguments", given.into_bytes()).0);
        }
        match file {
            Some(path) if path.as_os_str() == "-" => stdin_named = true,
            Some(path) => {
                let file = File::open(path).map_err(|why| Wrong::file(path, &why))?;
                let found = file.metadata();
                if found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
                    return Err(Wrong(format!(
                        "{}: is a folder; a file with one URL a line is needed",
                        path.display()
                    )));
                }
                let mut reader = Reader::new(file);
                // A pipe may be slow, so only a file is checked.
                if found.is_ok_and(|found| found.is_file()) && reader.is_binary() {
                    return Err(Wrong(format!(
                        "{}: is no text; a file with one URL a line is needed (of a packed one: zcat FILE | politely fetch -)",
                        path.display()
                    )));
                }
                let mut source = Source::new(path.display().to_string(), reader);
                source.file = Some(path.to_owned());
                sources.push(source);
            }
            None => {}
        }
        if stdin_named {
            sources.push(Source::new(
                "standard input".to_owned(),
                Reader::new(io::stdin()),
            ));
        }
        Ok(Self(sources))
    }

    /// Returns a list in memory as a source.
    pub(crate) fn of_bytes(name: &str, list: Vec<u8>) -> Self {
        let reader = Reader::new(Cursor::new(list));
        Self(vec![Source::new(name.to_owned(), reader)])
    }

    /// Returns whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the file at `path` is one of the sources. Writing there would destroy unread
    /// input.
    pub(crate) fn reads(&self, path: &Path) -> bool {
        let files = self.0.iter().filter_map(|source| source.file.as_deref());
        files.into_iter().any(|file| is_same_file(file, path))
    }

    /// Reads the next line without its end into `line`. Returns its place, or `None` at the end. A
    /// line longer than [`LINE_MAX`] is cut there, and its rest is skipped.
    pub(crate) fn next_line(&mut self, line: &mut Vec<u8>) -> Result<Option<Place>, Wrong> {
        while let Some(source) = self.0.first_mut() {
            line.clear();
            let read = read_line(&mut source.reader.0, line).map_err(|why| {
                Wrong(format!("{}: {}", source.name, crate::exit::io_words(&why)))
            })?;
            if read {
                source.line += 1;
                line.drain(..marks(line));
                return Ok(Some(Place {
                    source: source.name.clone(),
                    line: source.line,
                }));
            }
            self.0.remove(0);
        }
        Ok(None)
    }

    /// Returns whether the next line can be read without waiting.
    pub(crate) fn has_more_at_hand(&self) -> bool {
        self.0
            .first()
            .is_some_and(|source| source.reader.has_line())
    }
}

impl Source {
    fn new(name: String, reader: Reader) -> Self {
        Self {
            name,
            file: None,
            reader,
            line: 0,
        }
    }
}

/// Returns the length of the byte order marks that a line begins with, and of blanks before them.
/// Joined files have marks in the middle, and tools that add one do so twice.
fn marks(line: &[u8]) -> usize {
    let mut rest = line;
    while let Some(behind) = rest.trim_ascii_start().strip_prefix(BYTE_ORDER_MARK) {
        rest = behind;
    }
    line.len() - rest.len()
}

fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let read = reader
        .by_ref()
        .take(LINE_MAX as u64 + 1)
        .read_until(b'\n', line)?;
    if read == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_MAX {
        reader.skip_until(b'\n')?;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(true)
}

/// The content of a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// Blank, or a comment.
    Nothing,
    /// A URL that can be fetched.
    Url(Url),
    /// The line is no URL that can be fetched, for this reason.
    Malformed(String),
}

impl Line {
    pub(crate) fn parse(line: &[u8]) -> Self {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Self::Nothing;
        }
        if line.len() >= LINE_MAX {
            return Self::Malformed(format!("longer than {LINE_MAX} bytes"));
        }
        let text = match std::str::from_utf8(line) {
            Ok(text) => Cow::Borrowed(text),
            // The encoding is unknown, so the bytes stay as they are, as wget and curl do it.
            Err(_) => Cow::Owned(with_escapes(line)),
        };
        // Parsers drop tabs and line ends anywhere in the text, and the result is another URL.
        if text.contains(char::is_control) {
            return Self::Malformed("a tab or another control character in it".to_owned());
        }
        match Url::parse(&text) {
            Ok(url) if !matches!(url.scheme(), "http" | "https") => Self::Malformed(format!(
                "scheme `{}` is neither http nor https",
                url.scheme()
            )),
            Ok(url) if url.host_str().is_none_or(str::is_empty) => {
                Self::Malformed("no host".to_owned())
            }
            Ok(url) => Self::Url(url),
            Err(why) => Self::Malformed(format!("not a URL: {}", url_words(why))),
        }
    }
}

/// Returns a line with each byte that is not ASCII written as `%XX`.
fn with_escapes(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len() + 16);
    for &byte in line {
        if byte.is_ascii() {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Returns whether two paths lead to one file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let found = std::fs::metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    identity(one).is_some_and(|file| identity(other) == Some(file))
}

/// Returns whether an argument given as a URL is a file, which may be a list of URLs.
pub(crate) fn is_list(given: &str) -> bool {
    !matches!(Line::parse(given.as_bytes()), Line::Url(_)) && Path::new(given).is_file()
}

/// Returns a URL without user and password, so that neither appears on a screen or in a log.
pub(crate) fn without_login(url: &str) -> String {
    let begin = url.find("://").map_or(0, |scheme| scheme + 3);
    let authority = url[begin..].split(['/', '?', '#']).next().unwrap_or("");
    match authority.rfind('@') {
        Some(at) => format!("{}{}", &url[..begin], &url[begin + at + 1..]),
        None => url.to_owned(),
    }
}

/// Returns a line for display: bounded, and without terminal control characters.
pub(crate) fn shown(line: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX * 4)]);
    let mut shown: String = text
        .trim()
        .chars()
        .take(SHOWN_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.trim().chars().count() > SHOWN_MAX {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &[u8]) -> Vec<Vec<u8>> {
        let mut sources = Sources::of_bytes("x", text.to_vec());
        let (mut all, mut line) = (Vec::new(), Vec::new());
        while let Some(place) = sources.next_line(&mut line).unwrap() {
            all.push(line.clone());
            assert_eq!(place.line as usize, all.len());
        }
        all
    }

    #[test]
    fn line_ends_of_all_kinds_and_a_missing_last_one() {
        assert_eq!(lines(b"a\r\nb\n\nc"), [&b"a"[..], b"b", b"", b"c"]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_line() {
        assert_eq!(lines(b"\xef\xbb\xbfa\n\xef\xbb\xbfb"), [b"a", b"b"]);
        let twice = "\u{feff}\u{feff}a\n \t\u{feff} \u{feff}b\n c";
        assert_eq!(lines(twice.as_bytes()), [&b"a"[..], b"b", b" c"]);
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_escaped() {
        let Line::Url(url) = Line::parse(b"http://a/caf\xe9?q=\xff") else {
            panic!("a URL");
        };
        assert_eq!(url.as_str(), "http://a/caf%E9?q=%FF");
        let wrong = Line::parse(b"http://caf\xe9.example/");
        assert!(matches!(wrong, Line::Malformed(_)), "{wrong:?}");
    }

    #[test]
    fn a_line_without_end_is_cut_and_its_rest_skipped() {
        let mut text = vec![b'x'; LINE_MAX * 3];
        text.extend_from_slice(b"\nhttp://a/\n");
        let lines = lines(&text);
        assert_eq!(lines.len(), 2);
        assert!(matches!(Line::parse(&lines[0]), Line::Malformed(_)));
        assert!(matches!(Line::parse(&lines[1]), Line::Url(_)));
    }

    #[test]
    fn what_is_no_url_says_why() {
        for (line, why) in [
            (&b"example.com/a"[..], "must begin with http"),
            (b"ftp://a/b", "neither http nor https"),
            (b"http://", "host"),
            (b"http://a b/", "invalid"),
            (b"http://\xff/", "invalid"),
            (b"http://a/x\ta title", "control character"),
            (b"http://a/x\rhttp://b/y", "control character"),
            (b"http://[::1/", "IPv6"),
        ] {
            let Line::Malformed(said) = Line::parse(line) else {
                panic!("{line:?}")
            };
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(Line::parse(b"  # note"), Line::Nothing);
        assert_eq!(Line::parse(b" \t"), Line::Nothing);
    }

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("http://u:p@a/x?y@z", "http://a/x?y@z"),
            ("http://u:p@q@[::1]:8", "http://[::1]:8"),
            ("u:p@127.0.0.1:1", "127.0.0.1:1"),
            ("http://a/@b", "http://a/@b"),
            ("", ""),
        ] {
            assert_eq!(without_login(url), shown);
        }
    }

    #[test]
    fn a_terminal_is_not_steered_by_a_line() {
        assert_eq!(shown(b"\x1b[2Jx"), "\u{fffd}[2Jx");
        assert!(shown(&[b'a'; 5_000]).chars().count() <= 201);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            for line in lines(&bytes) {
                let _ = (Line::parse(&line), shown(&line));
            }
        }
    }
}
