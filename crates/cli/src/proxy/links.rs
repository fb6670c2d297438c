//! URLs in the answers of a gateway. A client that follows them must come back to the gateway.
//!
//! Location and Content-Location become a path of the gateway if it leads to that URL, and stay as
//! they are if it does not: another origin needs a route of its own. The Path of a cookie gets the
//! same beginning, and its Domain, which is not the gateway's, is left out.

use http::header::{CONTENT_LOCATION, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Uri};
use url::{Position, Url};

use super::way::Back;

/// Rewrites the URLs in the header fields of the answer to a request for `uri`.
pub(super) fn lead_back(headers: &mut HeaderMap, uri: &Uri, back: &Back) {
    let named = [LOCATION, CONTENT_LOCATION, SET_COOKIE];
    if *back == Back::None || !named.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    let Ok(own) = Url::parse(&uri.to_string()) else {
        return;
    };
    for name in [LOCATION, CONTENT_LOCATION] {
        let link = headers.get(&name).and_then(|link| link.to_str().ok());
        let link = link.and_then(|link| back.link(link, &own));
        if let Some(link) = link.and_then(|link| link.parse().ok()) {
            headers.insert(name, link);
        }
    }
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).into_iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        let moved = cookie.to_str().ok().map(|text| back.cookie(text, &own));
        let moved = moved.and_then(|text| text.parse().ok());
        headers.append(SET_COOKIE, moved.unwrap_or(cookie));
    }
}

impl Back {
    /// Returns the link of the gateway that leads to `link`. A link that is relative to its page
    /// needs no change.
    fn link(&self, link: &str, own: &Url) -> Option<String> {
        let is_relative = !link.starts_with('/') && Url::parse(link).is_err();
        let to = own.join(link).ok().filter(|_| !is_relative)?;
        let is_http = matches!(to.scheme(), "http" | "https");
        match self {
            Self::Route { .. } if to.origin() == own.origin() => {
                self.path(&to[Position::BeforePath..], own)
            }
            Self::Url if is_http => Some(format!("/{to}")),
            Self::Route { .. } | Self::Url | Self::None => None,
        }
    }

    /// Returns the path of the gateway that leads to `path` of the host.
    fn path(&self, path: &str, own: &Url) -> Option<String> {
        match self {
            Self::Route { name, base } => {
                let rest = path.strip_prefix(base.as_str())?;
                let is_below = rest.is_empty() || rest.starts_with(['/', '?', '#']);
                is_below.then(|| format!("/{name}{rest}"))
            }
            Self::Url => Some(format!("/{}{path}", &own[..Position::BeforePath])),
            Self::None => None,
        }
    }

    fn cookie(&self, cookie: &str, own: &Url) -> String {
        // Clients accept these without a Domain and with the path `/` only.
        if cookie.trim_start().starts_with("__Host-") {
            return cookie.to_owned();
        }
        let attributes = cookie.split(';').enumerate().filter_map(|(i, attribute)| {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            if i == 0 {
                return Some(attribute.to_owned());
            }
            match name.trim() {
                name if name.eq_ignore_ascii_case("domain") => None,
                name if name.eq_ignore_ascii_case("path") => {
                    let path = self.path(value.trim(), own)?;
                    Some(format!(" {name}={path}"))
                }
                _ => Some(attribute.to_owned()),
            }
        });
        attributes.collect::<Vec<_>>().join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(base: &str) -> Back {
        Back::Route {
            name: "api".to_owned(),
            base: base.to_owned(),
        }
    }

    #[test]
    fn a_link_to_the_origin_of_its_route_leads_back_through_the_route() {
        let own = Url::parse("https://a.example/base/x/y").unwrap();
        for (base, link, expected) in [
            ("", "/login?a=%20b#c", Some("/api/login?a=%20b#c")),
            ("", "https://a.example/v1", Some("/api/v1")),
            ("", "//a.example:443/v1", Some("/api/v1")),
            ("", "https://a.example", Some("/api/")),
            ("/base", "/base/z", Some("/api/z")),
            ("/base", "/base", Some("/api")),
            ("/base", "/based", None),
            ("/base", "/other", None),
            ("", "next", None),
            ("", "../next", None),
            ("", "?page=2", None),
            ("", "http://a.example/v1", None),
            ("", "https://a.example:444/v1", None),
            ("", "https://a.example.evil/v1", None),
            ("", "//evil.example/v1", None),
            ("", "mailto:a@a.example", None),
        ] {
            let link = back(base).link(link, &own);
            assert_eq!(link.as_deref(), expected, "{base} {link:?}");
        }
        let all = |link| Back::Url.link(link, &own);
        assert_eq!(all("/z").as_deref(), Some("/https://a.example/z"));
        assert_eq!(
            all("http://b.example/z").as_deref(),
            Some("/http://b.example/z")
        );
        assert_eq!(all("ftp://b.example/z"), None);
        assert_eq!(Back::None.link("/z", &own), None);
    }

    #[test]
    fn a_cookie_is_one_of_its_route() {
        let own = Url::parse("https://a.example/base/x").unwrap();
        for (cookie, expected) in [
            (
                "a=b; Path=/; Domain=a.example; Secure",
                "a=b; Path=/api/; Secure",
            ),
            ("a=b; path=/v1", "a=b; path=/api/v1"),
            ("path=/x; HttpOnly", "path=/x; HttpOnly"),
            ("a=b", "a=b"),
            ("__Host-a=b; Path=/; Secure", "__Host-a=b; Path=/; Secure"),
        ] {
            assert_eq!(back("").cookie(cookie, &own), expected);
        }
        let below = back("/base").cookie("a=b; Path=/base/v1; Max-Age=3", &own);
        assert_eq!(below, "a=b; Path=/api/v1; Max-Age=3");
        let above = back("/base").cookie("a=b; Path=/", &own);
        assert_eq!(above, "a=b", "it counts for the path of the request");
        let url = Back::Url.cookie("a=b; Path=/", &own);
        assert_eq!(url, "a=b; Path=/https://a.example/");
    }
}
