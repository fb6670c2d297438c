//! Patterns of hosts, paths and keys.

use std::cmp::Ordering;

use politely_core::key::Key;

/// A pattern of a rule.
pub(super) enum Pattern {
    /// `api.example.com`.
    Host(String),
    /// `*.example.com`: all hosts below it.
    Suffix(String),
    /// `site:example.com`: the registrable domain and all hosts below it.
    Site(String),
    /// `api.example.com/repos/{owner}/*`.
    Path(String, Path),
    /// `custom/team-7`.
    Key(String),
    /// `custom/*`: all keys whose name begins so.
    Prefix(String),
    /// `*`: all requests.
    All,
}

/// A path template. The order is from the most specific to the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// A segment, or `None` for one of any name.
    segments: Vec<Option<String>>,
    /// Whether further segments may follow.
    is_open: bool,
}

impl Path {
    fn read(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.split('/').collect();
        let is_open = parts.last() == Some(&"*");
        if is_open {
            parts.pop();
        }
        let segment = |part: &str| match part.strip_prefix('{').map(|part| part.strip_suffix('}')) {
            Some(Some(name)) if !name.is_empty() && !name.contains(['{', '}']) => Ok(None),
            None if !part.contains(['{', '}', '*']) => Ok(Some(part.to_owned())),
            _ => Err(format!(
                "`{part}`: a path segment is a word, `{{name}}`, or `*` at the end"
            )),
        };
        Ok(Self {
            segments: parts.into_iter().map(segment).collect::<Result<_, _>>()?,
            is_open,
        })
    }

    /// Returns whether the path of a URL, which begins with a slash, matches.
    pub(super) fn covers(&self, path: &str) -> bool {
        let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
        for segment in &self.segments {
            match (segment, parts.next()) {
                (_, None) | (None, Some("")) => return false,
                (Some(name), Some(part)) if name != part => return false,
                _ => {}
            }
        }
        self.is_open || parts.next().is_none()
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.segments.iter().zip(&other.segments);
        let first = pairs
            .map(|pair| match pair {
                (Some(mine), Some(theirs)) => mine.cmp(theirs),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            })
            .find(|order| order.is_ne());
        let longer = || other.segments.len().cmp(&self.segments.len());
        first
            .unwrap_or_else(longer)
            .then(self.is_open.cmp(&other.is_open))
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A description of the mistake.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::All);
        }
        if let Some(site) = text.strip_prefix("site:") {
            let key = Key::site(site).map_err(|why| format!("`{text}`: {why}"))?;
            let site = key
                .as_str()
                .strip_prefix("site/")
                .unwrap_or(site)
                .to_owned();
            return Ok(Self::Site(site));
        }
        if let Some(suffix) = text.strip_prefix("*.") {
            return Ok(Self::Suffix(host(suffix)?));
        }
        let kinds = ["custom/", "site/", "address/", "egress/"];
        if kinds.iter().any(|kind| text.starts_with(kind)) {
            return match text.strip_suffix('*') {
                Some(prefix) => Ok(Self::Prefix(prefix.to_owned())),
                None => Key::parse(text)
                    .map(|key| Self::Key(key.as_str().to_owned()))
                    .map_err(|why| format!("`{text}`: {why}")),
            };
        }
        match text.split_once('/') {
            Some((name, path)) => Ok(Self::Path(host(name)?, Path::read(path)?)),
            None if text.contains(':') => Key::parse(text)
                .map(|key| Self::Key(key.as_str().to_owned()))
                .map_err(|why| format!("`{text}`: {why}")),
            None => Ok(Self::Host(host(text)?)),
        }
    }
}

/// Returns a host's name as it stands in URLs.
fn host(name: &str) -> Result<String, String> {
    if name.contains('*') {
        return Err(format!(
            "`{name}`: `*` begins a pattern of hosts, as in `*.example.com`; name each other host"
        ));
    }
    let key = Key::host(name).map_err(|why| format!("`{name}`: {why}"))?;
    Ok(key.as_str().to_owned())
}
