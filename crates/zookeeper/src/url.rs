//! Parses the URL of an ensemble.

use percent_encoding::percent_decode_str;
use url::Url;

/// The largest request that `ZooKeeper` accepts unless `jute.maxbuffer` is raised, in bytes.
const MAX_BYTES: usize = 0xf_ffff;

/// Why the URL of an ensemble is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is unknown, or is that of TLS, which is not supported.
    #[error(
        "unknown scheme \"{0}\"; use zookeeper://host1,host2/chroot, without TLS or in a tunnel"
    )]
    Scheme(String),
    /// The part before the servers is not `user:password`.
    #[error("the login of a ZooKeeper URL is user:password@; write / and @ in it as %2F and %40")]
    Login,
    /// The text in place of a server's address is not an address.
    #[error("\"{0}\" is not a server's address; write host or host:port")]
    Address(String),
    /// The path is not a path of znodes.
    #[error("\"{0}\" is not a ZooKeeper path; write /chroot with names between single slashes")]
    Chroot(String),
    /// A parameter is unknown or has an invalid value. The error omits the value.
    #[error("\"{0}\" is no parameter of a ZooKeeper URL, or has an invalid value; use max_bytes=N")]
    Parameter(String),
}

/// The parts of the URL of an ensemble.
#[derive(Debug)]
pub(crate) struct Place {
    /// `host:port,host:port`.
    pub(crate) servers: String,
    /// `user:password`.
    pub(crate) login: Option<String>,
    /// The path of the znode above all others, without a slash at the end. The root is empty.
    pub(crate) chroot: String,
    /// The largest request that the servers accept, in bytes.
    pub(crate) max_bytes: usize,
}

impl Place {
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if scheme != "zookeeper" {
            return Err(UrlError::Scheme(scheme.to_owned()));
        }
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(decode_login(login)?), rest),
            None => (None, rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if let Some(bad) = hosts.split(',').find(|host| !is_address(host)) {
            return Err(UrlError::Address(bad.to_owned()));
        }
        let chroot = path.strip_suffix('/').unwrap_or(path);
        if !chroot.is_empty() && !chroot[1..].split('/').all(is_name) {
            return Err(UrlError::Chroot(path.to_owned()));
        }
        let (name, value) = query.split_once('=').unwrap_or((query, ""));
        let unknown = || UrlError::Parameter(name.to_owned());
        let max_bytes = match name {
            "" => MAX_BYTES,
            "max_bytes" => value.parse().map_err(|_| unknown())?,
            _ => return Err(unknown()),
        };
        Ok(Self {
            servers: hosts.to_owned(),
            login,
            chroot: chroot.to_owned(),
            max_bytes,
        })
    }
}

fn decode_login(login: &str) -> Result<String, UrlError> {
    let (user, password) = login.split_once(':').ok_or(UrlError::Login)?;
    // The text is either a login or an address with an `@` in the wrong place.
    if user.is_empty() || password.is_empty() || login.contains(['/', '?', '#']) {
        return Err(UrlError::Login);
    }
    let decoded = percent_decode_str(login).decode_utf8();
    decoded.map(Into::into).map_err(|_| UrlError::Login)
}

fn is_address(address: &str) -> bool {
    let url = Url::parse(&format!("zookeeper://{address}")).ok();
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    url.is_some_and(|url| url.has_host() && url.port() != Some(0)) && address.chars().all(is_host)
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '#';
    !matches!(name, "" | "." | ".." | "zookeeper") && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_login_and_chroot() {
        let place =
            Place::parse("zookeeper://ann:p%40ss@a:1,b,[::1]:2182/x/y?max_bytes=9").unwrap();
        assert_eq!(place.servers, "a:1,b,[::1]:2182");
        assert_eq!(place.login.as_deref(), Some("ann:p@ss"));
        assert_eq!((&*place.chroot, place.max_bytes), ("/x/y", 9));
        let place = Place::parse("zookeeper://a/").unwrap();
        assert_eq!((place.login, &*place.chroot), (None, ""));
    }

    #[test]
    fn a_bad_url_is_reported_in_one_line() {
        for (url, told) in [
            ("", "unknown scheme"),
            ("redis://a", "unknown scheme \"redis\""),
            ("zookeepers://a", "without TLS"),
            ("zookeeper://", "\"\" is not a server's address"),
            ("zookeeper://a,,b", "\"\" is not a server's address"),
            ("zookeeper://a:b", "\"a:b\" is not a server's address"),
            ("zookeeper://a:99999", "is not a server's address"),
            ("zookeeper://a:0", "is not a server's address"),
            ("zookeeper://[::1", "is not a server's address"),
            ("zookeeper://ann@a", "user:password@"),
            ("zookeeper://:hidden@a", "user:password@"),
            ("zookeeper://ann:hid/den@a", "user:password@"),
            ("zookeeper://a//x", "\"//x\" is not a ZooKeeper path"),
            ("zookeeper://a/x/../y", "is not a ZooKeeper path"),
            ("zookeeper://a/zookeeper", "is not a ZooKeeper path"),
            ("zookeeper://a/x#y", "is not a ZooKeeper path"),
            ("zookeeper://a?wait=1", "\"wait\" is no parameter"),
            ("zookeeper://a?max_bytes=hidden", "\"max_bytes\""),
        ] {
            let error = Place::parse(url).expect_err(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
            assert_eq!(error.lines().count(), 1, "{url}: {error}");
            assert!(!error.contains("hid"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(rest in ".{0,40}") {
            let _ = Place::parse(&format!("zookeeper://{rest}"));
        }
    }
}
