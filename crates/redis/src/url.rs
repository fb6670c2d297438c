//! Parses the URL of an engine.

use percent_encoding::percent_decode_str;
use redis::io::tcp::TcpSettings;
use redis::{
    Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult,
    TlsCertificates,
};
use url::Url;

use crate::links::{Purpose, Server};

/// Why the URL of an engine is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is unknown.
    #[error(
        "an engine's URL begins with redis://, redis+sentinel:// or redis+cluster:// (or rediss for TLS), not with `{0}`"
    )]
    Scheme(String),
    /// The part before the servers is not a user and a password.
    #[error("no user and password before the `@`; write characters such as / and @ as %2F and %40")]
    Login,
    /// The text in place of a server's address is not an address.
    #[error("`{0}` is no server's address; say host:port")]
    Address(String),
    /// The name of the master is missing. Sentinels know masters by name.
    #[error("which master? Its name comes after the Sentinels: {0}://host:26379/mymaster")]
    Master(String),
    /// The path after the servers is not a database.
    #[error("`{0}` is no database; one server has databases 0, 1, …, a cluster has 0 alone")]
    Database(String),
    /// A parameter is unknown or has an invalid value. The error omits the value, which may be a
    /// password.
    #[error(
        "`{0}=` is no parameter of an engine's URL, or not with that value; say wait=1 or, with TLS, ca=FILE"
    )]
    Parameter(String),
    /// The file named by `ca` cannot be used.
    #[error("no certificates in {0}: {1}")]
    Certificates(String, String),
}

pub(crate) enum Kind {
    Alone,
    Sentinel { master: String },
    Cluster,
}

pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// The servers in the URL.
    pub(crate) servers: Vec<Server>,
    pub(crate) replicas: usize,
    login: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

impl Place {
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let no_scheme = || UrlError::Scheme(scheme.to_owned());
        let (protocol, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match protocol {
            "redis" | "valkey" => None,
            "rediss" | "valkeys" => Some(TlsCertificates {
                client_tls: None,
                root_cert: None,
            }),
            _ => return Err(no_scheme()),
        };
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let hosts_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (hosts, tail) = rest.split_at(hosts_end);
        // The parts around the servers are parsed as parts of a URL with one server.
        let around = Url::parse(&format!("redis://{login}@localhost{tail}")).ok();
        let around = around.filter(|url| url.host_str() == Some("localhost"));
        let mut around = around.ok_or(UrlError::Login)?;
        let port = if kind == "sentinel" { 26379 } else { 6379 };
        let servers = hosts.split(',').map(|host| server(host, port));
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;

        let path = around.path().to_owned();
        let mut path = path.split('/').filter(|part| !part.is_empty());
        let kind = match (kind, &servers[..]) {
            ("", [_]) => Kind::Alone,
            ("", _) => return Err(UrlError::Address(hosts.to_owned())),
            ("cluster", _) => Kind::Cluster,
            ("sentinel", _) => {
                let master = path.next();
                let master = master.ok_or_else(|| UrlError::Master(scheme.to_owned()))?;
                let master = percent_decode_str(master).decode_utf8_lossy();
                Kind::Sentinel {
                    master: master.into_owned(),
                }
            }
            _ => return Err(no_scheme()),
        };
        let database = path.next().unwrap_or("0");
        let is_one = path.next().is_none() && database.parse::<u16>().is_ok();
        if !is_one || matches!(kind, Kind::Cluster) && database != "0" {
            return Err(UrlError::Database(database.to_owned()));
        }

        let parameters: Vec<_> = around.query_pairs().into_owned().collect();
        around.set_path(database);
        around.set_query(None);
        let login = around.into_connection_info().map_err(|_| UrlError::Login)?;
        let mut place = Self {
            kind,
            servers,
            replicas: 0,
            login: login.redis_settings().clone().set_skip_set_lib_name(),
            tls,
        };
        for (name, value) in parameters {
            place.set(&name, &value)?;
        }
        if place.tls.is_some() {
            // An application with another provider has installed it by now. With two providers in
            // the tree, rustls does not choose one by itself.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(place)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        let unknown = || UrlError::Parameter(name.to_owned());
        match (name, &mut self.tls) {
            ("wait", _) => self.replicas = value.parse().map_err(|_| unknown())?,
            ("ca", Some(tls)) => {
                let wrong = |why| UrlError::Certificates(value.to_owned(), why);
                let pem = std::fs::read(value).map_err(|why| wrong(why.to_string()))?;
                if !pem.windows(11).any(|bytes| bytes == b"CERTIFICATE") {
                    return Err(wrong("none in PEM form".to_owned()));
                }
                tls.root_cert = Some(pem);
                // Reports an error now that would otherwise appear at the first call.
                self.client(&self.servers[0], Purpose::Calls)
                    .map_err(|why| wrong(why.to_string()))?;
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Returns the client for a server. A Sentinel has its own users and no databases.
    pub(crate) fn client(&self, server: &Server, purpose: Purpose) -> RedisResult<Client> {
        let (host, port) = (server.host().to_owned(), server.port());
        let addr = match &self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let login = match purpose {
            Purpose::Sentinel => RedisConnectionInfo::default().set_skip_set_lib_name(),
            Purpose::Notices => self.login.clone().set_protocol(ProtocolVersion::RESP3),
            _ => self.login.clone().set_protocol(ProtocolVersion::RESP2),
        };
        let info = addr
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(login);
        match &self.tls {
            Some(tls) => Client::build_with_tls(info, tls.clone()),
            None => Client::open(info),
        }
    }
}

fn server(text: &str, port: u16) -> Result<Server, UrlError> {
    let url = Url::parse(&format!("redis://{text}")).ok();
    let named = url
        .as_ref()
        .and_then(|url| Some((url.host_str()?, url.port())));
    match named {
        Some((host, its)) if !host.is_empty() => Ok(Server::new(
            host.trim_matches(['[', ']']),
            its.unwrap_or(port),
        )),
        _ => Err(UrlError::Address(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Place, UrlError> {
        Place::parse(url)
    }

    fn addresses(place: &Place) -> Vec<String> {
        place.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_url_says_where_and_who() {
        let place = parse("redis://ann:p%40ss@redis.example.com/3?wait=2").expect("one server");
        assert_eq!(addresses(&place), ["redis.example.com:6379"]);
        assert_eq!(place.login.username(), Some("ann"));
        assert_eq!(place.login.password(), Some("p@ss"));
        assert_eq!((place.login.db(), place.replicas), (3, 2));
        assert!(matches!(place.kind, Kind::Alone) && place.tls.is_none());

        let place = parse("valkeys+sentinel://:secret@[::1]:7000,s2/m/1").expect("Sentinels");
        assert_eq!(addresses(&place), ["::1:7000", "s2:26379"]);
        assert_eq!(place.login.username(), None);
        assert!(matches!(&place.kind, Kind::Sentinel { master } if master == "m"));
        assert!(place.tls.is_some() && place.login.db() == 1);

        let place = parse("redis+cluster://a:1,b:2,c:3").expect("a cluster");
        assert_eq!(addresses(&place), ["a:1", "b:2", "c:3"]);
    }

    #[test]
    fn a_bad_url_is_told_in_a_line() {
        for (url, told) in [
            ("", "begins with redis://"),
            ("http://a", "not with `http`"),
            ("redis+ring://a", "not with `redis+ring`"),
            ("redis://", "`` is no server's address"),
            ("redis://a:b", "`a:b` is no server's address"),
            ("redis://a,b", "`a,b` is no server's address"),
            ("redis://a:99999", "`a:99999` is no server's address"),
            ("redis://ann:a/b@c", "%2F"),
            ("redis://ann:a#b@c/1", "%2F"),
            ("redis+cluster://a,,b", "`` is no server's address"),
            ("redis+sentinel://a", "redis+sentinel://host:26379/mymaster"),
            ("redis://a/x", "`x` is no database"),
            ("redis://a/-1", "`-1` is no database"),
            ("redis+cluster://a/1", "`1` is no database"),
            ("redis://a/1/2", "is no database"),
            ("redis://a?wait=yes", "`wait=` is no parameter"),
            ("redis://a?x=1", "`x=` is no parameter"),
            ("redis://a?ca=f", "`ca=` is no parameter"),
            ("rediss://a?ca=/none.pem", "no certificates in /none.pem"),
            (
                "rediss://a?ca=/dev/null",
                "no certificates in /dev/null: none in PEM form",
            ),
        ] {
            let error = parse(url).err().expect(url).to_string();
            assert!(
                error.contains(told) && error.lines().count() == 1,
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn no_password_is_told() {
        for url in [
            "redis://ann:hidden/more@a",
            "redis://ann:hidden@/0",
            "redis://ann:hidden@a?x=1",
            "redis://a?password=hidden",
            "ann:hidden@a",
        ] {
            let error = parse(url).err().expect(url).to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_said_is_read_or_refused(rest in ".{0,40}", i in 0..6_usize) {
            let scheme = ["redis", "rediss", "redis+sentinel", "redis+cluster", "valkey", ""][i];
            let _ = parse(&format!("{scheme}://{rest}"));
        }
    }
}
