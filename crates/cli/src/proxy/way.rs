//! Where a request goes.
//!
//! | request | goes to |
//! | --- | --- |
//! | `/NAME/path` | the route NAME, with its path before `/path` |
//! | `/https://host/path`, on loopback | that URL |
//! | `GET http://host/path` | that URL: this is how clients use a forward proxy |
//! | `CONNECT host:443` | a connection to that host |

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri, Version};

use super::problem::Problem;
use crate::exit::Wrong;

/// How a caller uses the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gateway,
    Forward,
    Tunnel,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) uri: Uri,
    /// Whether the caller chose the host, so that private addresses are refused.
    pub(super) is_guarded: bool,
    /// How URLs of the answer lead back through the gateway.
    pub(super) back: Back,
}

/// The paths of a gateway that lead to the URLs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// `/NAME/…` leads to the route's origin, below the path `base`.
    Route { name: String, base: String },
    /// `/https://…` leads to any URL.
    Url,
    /// The caller names whole URLs to a forward proxy.
    None,
}

/// The routes of the gateway.
pub(super) struct Routes {
    routes: BTreeMap<String, Uri>,
    is_loopback: bool,
}

/// Returns how a request on the address `own` uses the proxy.
pub(super) fn kind_of<B>(request: &Request<B>, own: SocketAddr) -> Kind {
    let authority = request.uri().authority();
    if request.method() == Method::CONNECT {
        Kind::Tunnel
    } else if request.version() < Version::HTTP_2 && authority.is_some_and(|to| !is_own(to, own)) {
        Kind::Forward
    } else {
        // Every request of HTTP/2 names an authority: the proxy itself.
        Kind::Gateway
    }
}

/// Returns whether `uri` is no more than a host and its port.
fn names_port(uri: &Uri) -> bool {
    let port = uri.port_u16().is_some_and(|port| port > 0);
    port && uri.scheme().is_none() && uri.path_and_query().is_none()
}

/// Returns whether `authority` is the address `own`. A forward proxy must not call itself.
fn is_own(authority: &Authority, own: SocketAddr) -> bool {
    let host = authority.host().trim_matches(['[', ']']);
    let is_local = host.eq_ignore_ascii_case("localhost") && own.ip().is_loopback();
    let is_own = host.parse::<IpAddr>().is_ok_and(|ip| ip == own.ip());
    authority.port_u16().unwrap_or(80) == own.port() && (is_local || is_own)
}

impl Routes {
    pub(super) fn new(routes: Vec<(String, String)>, is_loopback: bool) -> Result<Self, Wrong> {
        let mut by_name = BTreeMap::new();
        for (name, url) in routes {
            let wrong = |why: &str| Wrong(format!("--route {name}: {why}"));
            let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
            let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
            let has_login = uri.authority().is_some_and(|to| to.as_str().contains('@'));
            if !is_http || has_login || uri.query().is_some() {
                return Err(wrong(
                    "use http:// or https://, without a login and a query",
                ));
            }
            if by_name.contains_key(&name) {
                return Err(wrong("the name is given twice"));
            }
            by_name.insert(name, uri);
        }
        Ok(Self {
            routes: by_name,
            is_loopback,
        })
    }

    /// Returns the target of a request.
    pub(super) fn way<B>(&self, request: &Request<B>, kind: Kind) -> Result<Way, Problem> {
        let way = match kind {
            Kind::Gateway => self.of_path(request.uri())?,
            Kind::Forward => Way {
                uri: request.uri().clone(),
                is_guarded: true,
                back: Back::None,
            },
            Kind::Tunnel if !names_port(request.uri()) => {
                return Err(Problem::bad("CONNECT needs HOST:PORT"));
            }
            // The limits are those of the host's other https URLs.
            Kind::Tunnel => Way {
                uri: assemble(Scheme::HTTPS, request.uri().authority().cloned(), "/")?,
                is_guarded: true,
                back: Back::None,
            },
        };
        let authority = way.uri.authority().map_or("", Authority::as_str);
        if authority.contains('@') {
            let detail = "a login in the URL: send it in Authorization";
            return Err(Problem::bad(detail));
        }
        if !matches!(way.uri.scheme_str(), Some("http" | "https")) || authority.is_empty() {
            return Err(Problem::bad("only http and https URLs are served"));
        }
        Ok(way)
    }

    fn of_path(&self, uri: &Uri) -> Result<Way, Problem> {
        let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
        let path = path.strip_prefix('/').unwrap_or_default();
        if path.starts_with("http://") || path.starts_with("https://") {
            if !self.is_loopback {
                let detail = "whole URLs are served on a loopback address only; use http_proxy";
                return Err(Problem::new(StatusCode::FORBIDDEN, detail));
            }
            let uri = path.parse();
            return Ok(Way {
                uri: uri.map_err(|why| Problem::bad(&format!("not a URL: {why}")))?,
                is_guarded: true,
                back: Back::Url,
            });
        }
        let (name, rest) = path.split_at(path.find(['/', '?']).unwrap_or(path.len()));
        let route = self.routes.get(name).ok_or_else(|| self.unknown())?;
        let base = route.path().trim_end_matches('/');
        let slash = if base.is_empty() && !rest.starts_with('/') {
            "/"
        } else {
            ""
        };
        let scheme = route.scheme().cloned().unwrap_or(Scheme::HTTPS);
        let path = format!("{base}{slash}{rest}");
        Ok(Way {
            uri: assemble(scheme, route.authority().cloned(), &path)?,
            is_guarded: false,
            back: Back::Route {
                name: name.to_owned(),
                base: base.to_owned(),
            },
        })
    }

    fn unknown(&self) -> Problem {
        let names: Vec<&str> = self.routes.keys().map(String::as_str).collect();
        let names = if names.is_empty() {
            "there are none (--route NAME=URL)".to_owned()
        } else {
            format!("there are /{}/", names.join("/, /"))
        };
        let detail = format!("no route begins so: {names}");
        Problem::new(StatusCode::NOT_FOUND, detail)
    }
}

fn assemble(scheme: Scheme, authority: Option<Authority>, path: &str) -> Result<Uri, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::bad(&format!("not a URL: {why}"));
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = authority;
    parts.path_and_query = Some(path.parse().map_err(|why| wrong(&why))?);
    Uri::from_parts(parts).map_err(|why| wrong(&why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let route = |name: &str, url: &str| (name.to_owned(), url.to_owned());
        let routes = vec![
            route("openai", "https://api.openai.com"),
            route("deep", "http://10.0.0.1:8080/base/"),
        ];
        Routes::new(routes, true).map_err(|why| why.0).unwrap()
    }

    fn way(target: &str) -> Option<(String, bool)> {
        let request = Request::get(target).body(()).unwrap();
        let own = "127.0.0.1:7078".parse().unwrap();
        let way = routes().way(&request, kind_of(&request, own)).ok()?;
        Some((way.uri.to_string(), way.is_guarded))
    }

    #[test]
    fn a_request_goes_to_its_route_or_url_byte_for_byte() {
        for (target, to, is_guarded) in [
            (
                "/openai/v1/a%2Fb?q=%7e&x=a+b",
                "https://api.openai.com/v1/a%2Fb?q=%7e&x=a+b",
                false,
            ),
            ("/openai", "https://api.openai.com/", false),
            ("/openai?x", "https://api.openai.com/?x", false),
            ("/openai//x", "https://api.openai.com//x", false),
            ("/deep/v1?", "http://10.0.0.1:8080/base/v1?", false),
            ("/deep", "http://10.0.0.1:8080/base", false),
            (
                "http://127.0.0.1:7078/openai/v1",
                "https://api.openai.com/v1",
                false,
            ),
            (
                "http://localhost:7078/openai/v1",
                "https://api.openai.com/v1",
                false,
            ),
            (
                "/https://a.example/x?y=%20",
                "https://a.example/x?y=%20",
                true,
            ),
            ("http://a.example:81/x?y", "http://a.example:81/x?y", true),
            ("https://a.example/x", "https://a.example/x", true),
        ] {
            assert_eq!(way(target), Some((to.to_owned(), is_guarded)), "{target}");
        }
    }

    #[test]
    fn a_request_without_a_route_goes_nowhere() {
        for target in [
            "/",
            "/other/v1",
            "/openai-2/v1",
            "/https://",
            "/https://me:secret@a.example/",
            "http://me:secret@a.example/",
            "ftp://a.example/",
        ] {
            assert_eq!(way(target), None, "{target}");
        }
    }
}
