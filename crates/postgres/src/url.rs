//! Parses the URL of a server.

use std::sync::Arc;
use std::time::Duration;

use politely_store::EngineError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use url::form_urlencoded;

use crate::tls::Tls;

/// How long a connection may take, unless the URL says otherwise.
const CONNECT: Duration = Duration::from_secs(5);
/// After this time without an acknowledgement, the connection is lost.
const SILENCE: Duration = Duration::from_secs(6);

/// Why the URL of a server is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is unknown.
    #[error("unknown scheme \"{0}\"; use postgres://user:password@host/database")]
    Scheme(String),
    /// The mode of TLS is one that does not check the server's certificate, or is unknown.
    #[error("\"sslmode={0}\" does not check who the server is; use sslmode=require or disable")]
    TlsMode(String),
    /// The certificates of this machine or of the given file cannot be used.
    #[error("no certificates in {0}: {1}")]
    Certificates(String, String),
    /// Another part of the URL is invalid. The error omits values, which may be a password.
    #[error(
        "this is no URL of a PostgreSQL server ({0}); use postgres://user:password@host/database"
    )]
    Invalid(String),
}

/// The parts of a server's URL.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
    /// `host:port,host:port`, for errors.
    pub(crate) servers: String,
}

impl Place {
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, _) = url.split_once("://").unwrap_or_default();
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(UrlError::Scheme(scheme.to_owned()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots) = ("disable".to_owned(), None);
        let mut others = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "sslmode" => mode = value.into_owned(),
                "sslrootcert" => roots = Some(value.into_owned()),
                _ => _ = others.append_pair(&name, &value),
            }
        }
        let others = others.finish().replace('+', "%20");
        let config: Result<Config, _> = format!("{base}?{others}").parse();
        let mut config = config.map_err(|why| UrlError::Invalid(reason(&why)))?;
        if config.get_hosts().is_empty() {
            return Err(UrlError::Invalid("no host".to_owned()));
        }
        let tls = match mode.as_str() {
            "disable" => None,
            "require" | "verify-full" => Some(Arc::new(tls(roots)?)),
            _ => return Err(UrlError::TlsMode(mode)),
        };
        config.ssl_mode(match tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(SILENCE);
        config.tcp_user_timeout(SILENCE);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("politely");
        }
        let servers = servers(&config);
        let tls = Tls(tls);
        Ok(Self {
            config,
            tls,
            servers,
        })
    }

    pub(crate) fn error(&self, what: &str) -> EngineError {
        EngineError(format!("PostgreSQL at {}: {what}", self.servers))
    }
}

/// Returns what is wrong with a URL, without its values.
fn reason(why: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(why).map_or_else(|| why.to_string(), ToString::to_string);
    cause.lines().next().unwrap_or_default().to_owned()
}

fn servers(config: &Config) -> String {
    let ports = config.get_ports();
    let one = |(number, host): (usize, &Host)| {
        let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        }
    };
    let all: Vec<_> = config.get_hosts().iter().enumerate().map(one).collect();
    all.join(",")
}

fn tls(roots: Option<String>) -> Result<ClientConfig, UrlError> {
    let wrong = |place: &str, why: &dyn std::fmt::Display| {
        UrlError::Certificates(place.to_owned(), why.to_string())
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|why| wrong("this machine", &why))?;
    let Some(file) = roots else {
        let builder = builder.with_platform_verifier();
        let builder = builder.map_err(|why| wrong("this machine", &why))?;
        return Ok(builder.with_no_client_auth());
    };
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&file).map_err(|why| wrong(&file, &why))?;
    for certificate in found {
        let certificate = certificate.map_err(|why| wrong(&file, &why))?;
        store.add(certificate).map_err(|why| wrong(&file, &why))?;
    }
    if store.is_empty() {
        return Err(wrong(&file, &"it has none in PEM"));
    }
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_user() {
        let place = Place::parse("postgres://ann:p%40ss@a:1,b/db?application_name=x%20y").unwrap();
        assert_eq!(place.servers, "a:1,b:5432");
        assert_eq!(place.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(place.config.get_application_name(), Some("x y"));
        assert_eq!(place.config.get_ssl_mode(), SslMode::Disable);
        assert!(place.tls.0.is_none());
        let place = Place::parse("postgresql://ann@a/db?sslmode=require").unwrap();
        assert_eq!(place.config.get_ssl_mode(), SslMode::Require);
        assert!(place.tls.0.is_some());
    }

    #[test]
    fn a_bad_url_is_reported_in_one_line() {
        for (url, told) in [
            ("", "unknown scheme"),
            ("redis://a", "unknown scheme \"redis\""),
            (
                "postgres://ann:hidden@a:b/db",
                "no URL of a PostgreSQL server",
            ),
            ("postgres://", "(no host)"),
            ("postgres:///db", "(no host)"),
            ("postgres://a/db?colour=hidden", "colour"),
            (
                "postgres://a/db?sslmode=prefer",
                "\"sslmode=prefer\" does not check",
            ),
            (
                "postgres://a/db?sslmode=require&sslrootcert=/no",
                "no certificates in /no",
            ),
        ] {
            let error = Place::parse(url).expect_err(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
            assert_eq!(error.lines().count(), 1, "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(rest in ".{0,40}") {
            let _ = Place::parse(&format!("postgres://{rest}"));
        }
    }
}
