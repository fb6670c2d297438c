//! Classification of client errors: the failure of the host or network behind an error.
//!
//! HTTP clients wrap the cause several times. The types that identify it (hyper's connect errors,
//! reqwest's time-outs) are private to them. This module uses the kinds of the I/O errors in the
//! chain and the clients' fixed phrases. The tests in `tests/it/` produce the real errors.

use std::error::Error;
use std::io::{self, ErrorKind};

use politely_core::signal::Failure;
use smallvec::SmallVec;

/// Maximum number of causes to examine. No client nests deeper, and a chain may be a loop.
pub(super) const CAUSES_MAX: usize = 16;

/// Returns the failure behind `error`, from its chain of causes. `None` means that no cause is a
/// failure of a host or network: the request was never sent.
pub fn failure_of(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mut clues = Clues::default();
    let mut cause = Some(error);
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        cause = clues.look_at(error);
    }
    clues.conclude()
}

/// A reason to repeat a request at once, from an error before the head of a response.
///
/// None of these is evidence about the host: it did not refuse the request, and it did no work for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprocessed {
    /// The server reported that it did not process the request: `REFUSED_STREAM`, or a GOAWAY that
    /// excludes its stream (RFC 9113, sections 6.8 and 8.7). Any code counts except
    /// `ENHANCE_YOUR_CALM`, which is a refusal.
    Told,
    /// The connection closed before the head of a response. If the connection was used before, the
    /// server may have closed it while the request was on its way (RFC 9112, section 9.3.1). The
    /// error does not say whether the connection was used before.
    Closed,
    /// The server answers this request over HTTP/1.1 only: `HTTP_1_1_REQUIRED` (RFC 9113, section
    /// 7). Or its HTTP/2 is malformed, or it takes ours to be malformed.
    Http1Required,
}

/// Returns the reason to repeat the request at once, from an `error` before the head of a response.
/// `None` means that the error is a failure.
pub fn unprocessed(error: &(dyn Error + 'static)) -> Option<Unprocessed> {
    /// Phrases of h2 for codes that say that one side does not speak HTTP/2.
    const HTTP_1_1_REQUIRED: [&str; 6] = [
        "endpoint requires HTTP/1.1",
        "security properties do not meet minimum requirements",
        "unspecific protocol error detected",
        "flow-control protocol violated",
        "frame with invalid size",
        "unable to maintain the header compression context",
    ];
    const ENHANCE_YOUR_CALM: &str = "detected excessive load";
    const REFUSED_STREAM: &str = "stream error received: refused stream";
    const GOAWAY: &str = "connection error received: ";
    /// Phrases of hyper and h2, in this order.
    const CLOSED: [&str; 3] = [
        "connection closed before message completed",
        "operation was canceled",
        "stream closed because of a broken pipe",
    ];

    let mut closed = false;
    let mut cause = Some(error);
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        let words = error.to_string();
        if HTTP_1_1_REQUIRED
            .iter()
            .any(|phrase| words.contains(phrase))
        {
            return Some(Unprocessed::Http1Required);
        }
        // A connection that was never established cannot be a stale one.
        if words.contains(ENHANCE_YOUR_CALM) || words.contains("client error (Connect)") {
            return None;
        }
        if words.contains(REFUSED_STREAM) || words.contains(GOAWAY) {
            return Some(Unprocessed::Told);
        }
        closed |= CLOSED.iter().any(|phrase| words.contains(phrase));
        let io = error.downcast_ref::<io::Error>();
        closed |= io.is_some_and(|io| {
            use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            matches!(
                io.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            )
        });
        cause = io
            .and_then(io::Error::get_ref)
            .map_or_else(|| error.source(), |content| Some(content));
    }
    closed.then_some(Unprocessed::Closed)
}

/// The meaning of a phrase in the text of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clue {
    Dns,
    /// A temporary failure of the resolver (`EAI_AGAIN`). Every other answer of the resolver
    /// concerns the name.
    Resolver,
    Connecting,
    Timeout,
    Tls,
    /// A handshake that broke off, and that may succeed at the next try.
    BrokenHandshake,
    Broken,
    Malformed,
}

/// Phrases of hyper 1, hyper-util 0.1, reqwest 0.13, tower 0.5, h2 0.4, tokio-rustls 0.26 and std.
const PHRASES: [(&str, Clue); 21] = [
    ("dns error", Clue::Dns),
    ("failed to lookup address", Clue::Dns),
    ("emporary failure in name resolution", Clue::Resolver),
    ("try again", Clue::Resolver),
    ("client error (Connect)", Clue::Connecting),
    ("tcp connect error", Clue::Connecting),
    ("operation timed out", Clue::Timeout),
    ("request timed out", Clue::Timeout),
    ("tls handshake", Clue::Tls),
    ("tls handshake eof", Clue::BrokenHandshake),
    ("invalid peer certificate", Clue::Tls),
    ("invalid dns name", Clue::Tls),
    ("connection closed", Clue::Broken),
    ("connection error", Clue::Broken),
    ("error reading a body", Clue::Broken),
    ("stream error received", Clue::Broken),
    ("invalid HTTP", Clue::Malformed),
    ("invalid content-length parsed", Clue::Malformed),
    ("unexpected transfer-encoding parsed", Clue::Malformed),
    ("message head is too large", Clue::Malformed),
    // `HTTP_1_1_REQUIRED` says nothing about the load of the host.
    ("endpoint requires HTTP/1.1", Clue::Malformed),
];

#[derive(Default)]
struct Clues {
    clues: SmallVec<[Clue; 8]>,
    io: Option<ErrorKind>,
}

impl Clues {
    /// Records the clues in `error` and returns the next cause.
    fn look_at<'a>(
        &mut self,
        error: &'a (dyn Error + 'static),
    ) -> Option<&'a (dyn Error + 'static)> {
        if error.is::<tokio::time::error::Elapsed>() {
            self.clues.push(Clue::Timeout);
        }
        #[cfg(any(feature = "reqwest", feature = "coordinator"))]
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            self.clues.push(of_tls(error));
        }
        let words = error.to_string();
        let found = PHRASES.iter().filter(|(phrase, _)| words.contains(phrase));
        self.clues.extend(found.map(|(_, clue)| *clue));
        let Some(io) = error.downcast_ref::<io::Error>() else {
            return error.source();
        };
        self.io = Some(io.kind());
        // The source of an I/O error is the source of its content, so `source` would skip the
        // content itself.
        match io.get_ref() {
            Some(content) => Some(content),
            None => error.source(),
        }
    }

    fn conclude(&self) -> Option<Failure> {
        use ErrorKind::{
            AddrNotAvailable, ConnectionRefused, HostUnreachable, InvalidData, InvalidInput,
            NetworkUnreachable, TimedOut,
        };
        let has = |clue| self.clues.contains(&clue);
        if has(Clue::Timeout) || self.io == Some(TimedOut) {
            return Some(Failure::Timeout);
        }
        if has(Clue::Dns) {
            return Some(if has(Clue::Resolver) {
                Failure::Resolver
            } else {
                Failure::NoSuchHost
            });
        }
        if has(Clue::BrokenHandshake) {
            return Some(Failure::Connect);
        }
        // rustls returns its errors as invalid data. Before a connection is established, nothing
        // else can be invalid data.
        if has(Clue::Tls) || (has(Clue::Connecting) && self.io == Some(InvalidData)) {
            return Some(Failure::Tls);
        }
        let no_route = matches!(
            self.io,
            Some(ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
        );
        if has(Clue::Connecting) || no_route {
            return Some(Failure::Connect);
        }
        if has(Clue::Malformed) || matches!(self.io, Some(InvalidData | InvalidInput)) {
            return Some(Failure::Malformed);
        }
        (has(Clue::Broken) || self.io.is_some()).then_some(Failure::Reset)
    }
}

/// Returns the meaning of an error of TLS. A wrong certificate or version stays wrong. All else
/// broke this handshake, and the next one may succeed, at another machine of the host.
#[cfg(any(feature = "reqwest", feature = "coordinator"))]
fn of_tls(error: &rustls::Error) -> Clue {
    use rustls::AlertDescription as Alert;
    use rustls::Error;
    match error {
        Error::InvalidCertificate(_)
        | Error::InvalidCertRevocationList(_)
        | Error::NoCertificatesPresented
        | Error::UnsupportedNameType
        // The version, or a part of it that this client requires.
        | Error::PeerIncompatible(_)
        // The certificates of this system cannot be read.
        | Error::General(_)
        | Error::Other(_)
        | Error::AlertReceived(
            Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::CertificateUnobtainable
            | Alert::BadCertificateStatusResponse
            | Alert::BadCertificateHashValue
            | Alert::CertificateRequired
            | Alert::ProtocolVersion,
        ) => Clue::Tls,
        _ => Clue::BrokenHandshake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] io::Error);

    fn io(kind: ErrorKind, words: &'static str) -> io::Error {
        io::Error::new(kind, words)
    }

    #[test]
    fn the_deepest_cause_decides() {
        use ErrorKind::{ConnectionRefused, ConnectionReset, InvalidData, Other, TimedOut};
        let cases = [
            (
                "client error (Connect)",
                ConnectionRefused,
                "refused",
                Failure::Connect,
            ),
            (
                "client error (Connect)",
                InvalidData,
                "UnknownIssuer",
                Failure::Tls,
            ),
            (
                "client error (Connect)",
                TimedOut,
                "timed out",
                Failure::Timeout,
            ),
            (
                "dns error",
                Other,
                "Name or service not known",
                Failure::NoSuchHost,
            ),
            (
                "dns error",
                Other,
                "Temporary failure in name resolution",
                Failure::Resolver,
            ),
            (
                "client error (SendRequest)",
                ConnectionReset,
                "reset",
                Failure::Reset,
            ),
            (
                "client error (SendRequest)",
                InvalidData,
                "odd",
                Failure::Malformed,
            ),
        ];
        for (outer, kind, words, failure) in cases {
            let error = Outer(outer, io(kind, words));
            assert_eq!(failure_of(&error), Some(failure), "{outer}: {words}");
        }
    }

    /// The cause lies two I/O errors deep, where `source` does not lead.
    #[cfg(any(feature = "reqwest", feature = "coordinator"))]
    #[test]
    fn a_failed_handshake_is_tls_however_deep() {
        let tls = rustls::Error::General("no trust".to_owned());
        let error = io::Error::other(io::Error::new(ErrorKind::InvalidData, tls));
        assert_eq!(failure_of(&error), Some(Failure::Tls));
    }

    #[cfg(any(feature = "reqwest", feature = "coordinator"))]
    #[test]
    fn a_handshake_that_breaks_off_is_like_a_refused_connection() {
        use rustls::AlertDescription as Alert;
        use rustls::{CertificateError, Error, InvalidMessage};
        let of = |error| failure_of(&io::Error::new(ErrorKind::InvalidData, error));
        for alert in 0..=u8::MAX {
            let is_final = [41, 42, 43, 44, 45, 46, 48, 70, 111, 113, 114, 116].contains(&alert);
            let failure = if is_final {
                Failure::Tls
            } else {
                Failure::Connect
            };
            let alert = Alert::from(alert);
            assert_eq!(of(Error::AlertReceived(alert)), Some(failure), "{alert:?}");
        }
        let no_tls = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of(no_tls), Some(Failure::Connect));
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(of(expired), Some(Failure::Tls));
        let eof = io(ErrorKind::UnexpectedEof, "tls handshake eof");
        let error = Outer("client error (Connect)", eof);
        assert_eq!(failure_of(&error), Some(Failure::Connect));
    }

    #[test]
    fn bare_kinds_are_told_apart() {
        let kind = |kind: ErrorKind| failure_of(&io::Error::from(kind));
        assert_eq!(kind(ErrorKind::TimedOut), Some(Failure::Timeout));
        assert_eq!(kind(ErrorKind::InvalidData), Some(Failure::Malformed));
        assert_eq!(kind(ErrorKind::ConnectionReset), Some(Failure::Reset));
    }

    #[test]
    fn a_server_that_requires_http_1_is_not_overloaded() {
        let words = "stream error received: endpoint requires HTTP/1.1";
        let error = Outer("client error (SendRequest)", io(ErrorKind::Other, words));
        assert_eq!(failure_of(&error), Some(Failure::Malformed));
    }

    #[test]
    fn requests_that_were_not_processed_are_told_from_failures() {
        use ErrorKind::{ConnectionRefused, ConnectionReset, InvalidData, Other, TimedOut};
        use Unprocessed::{Closed, Http1Required, Told};
        let (send, connect) = ("client error (SendRequest)", "client error (Connect)");
        let cases = [
            (
                send,
                Other,
                "stream error received: refused stream before processing any application logic",
                Some(Told),
            ),
            (
                send,
                Other,
                "connection error received: not a result of an error",
                Some(Told),
            ),
            (
                send,
                Other,
                "connection error received: unexpected internal error encountered",
                Some(Told),
            ),
            (
                send,
                Other,
                "connection error received: detected excessive load generating behavior",
                None,
            ),
            (
                send,
                Other,
                "stream error received: detected excessive load generating behavior",
                None,
            ),
            (
                send,
                Other,
                "stream error received: stream no longer needed",
                None,
            ),
            (
                send,
                Other,
                "stream error received: endpoint requires HTTP/1.1",
                Some(Http1Required),
            ),
            (
                send,
                Other,
                "connection error received: endpoint requires HTTP/1.1",
                Some(Http1Required),
            ),
            (
                send,
                Other,
                "connection error received: security properties do not meet minimum requirements",
                Some(Http1Required),
            ),
            (
                send,
                Other,
                "connection closed before message completed",
                Some(Closed),
            ),
            (
                send,
                Other,
                "connection error detected: frame with invalid size",
                Some(Http1Required),
            ),
            (
                send,
                Other,
                "stream error received: unspecific protocol error detected",
                Some(Http1Required),
            ),
            (send, ConnectionReset, "reset", Some(Closed)),
            (send, TimedOut, "timed out", None),
            (send, InvalidData, "odd", None),
            (connect, ConnectionReset, "reset", None),
            (connect, ConnectionRefused, "refused", None),
        ];
        for (outer, kind, words, is) in cases {
            assert_eq!(
                unprocessed(&Outer(outer, io(kind, words))),
                is,
                "{outer}: {words}"
            );
        }
    }

    #[test]
    fn an_error_that_is_not_about_the_host_is_no_failure() {
        let error = url::ParseError::EmptyHost;
        assert_eq!(failure_of(&error), None);
    }
}
