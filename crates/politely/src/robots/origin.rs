//! The scope of a robots.txt: scheme, host and port (RFC 9309, 2.3).

use std::fmt;

use compact_str::CompactString;
use url::Url;

/// An origin, as `https://example.com` or `http://[::1]:8080`; a default port is left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(CompactString);

impl Origin {
    /// Returns the origin of `url`, or `None` unless it is http or https.
    pub fn of(url: &Url) -> Option<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        let (scheme, host) = (url.scheme(), url.host_str()?);
        Some(Self(match url.port() {
            None => compact_str::format_compact!("{scheme}://{host}"),
            Some(port) => compact_str::format_compact!("{scheme}://{host}:{port}"),
        }))
    }

    /// Returns the URL of the origin's robots.txt.
    pub fn robots_url(&self) -> String {
        format!("{}/robots.txt", self.0)
    }

    /// Returns the origin as text. Parsing it as a URL gives the same origin.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
