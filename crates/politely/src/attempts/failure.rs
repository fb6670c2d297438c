//! Which failure is behind an error?
//!
//! HTTP clients wrap the cause several times over, and the types that would tell (hyper's connect errors,
//! reqwest's time-outs) are private to them. What is left is the kinds of the I/O errors in the chain and the
//! clients' fixed phrases; the tests in `tests/it/` meet the real ones.

use std::error::Error;
use std::io::{self, ErrorKind};

use politely_core::signal::Failure;

/// Causes looked at: no client nests deeper, and a chain may be a loop.
const CAUSES_MAX: usize = 16;

/// Which failure is behind `error`, by its chain of causes; `None` if none of them is a host's or network's:
/// the request was never sent.
pub fn failure_of(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mut clues = Clues::default();
    let mut cause = Some(error);
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        cause = clues.look_at(error);
    }
    clues.conclude()
}

#[derive(Default)]
struct Clues {
    dns: bool,
    resolver: bool,
    connecting: bool,
    timeout: bool,
    tls: bool,
    broken: bool,
    malformed: bool,
    io: Option<ErrorKind>,
}

impl Clues {
    /// Notes what `error` says, and what is behind it.
    fn look_at<'a>(&mut self, error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
        let words = error.to_string();
        let says = |phrase: &str| words.contains(phrase);
        self.dns |= says("dns error") || says("failed to lookup address");
        // EAI_AGAIN is the resolver's trouble; every other answer is about the name.
        self.resolver |= says("emporary failure in name resolution") || says("try again");
        self.connecting |= says("client error (Connect)") || says("tcp connect error");
        self.timeout |= error.is::<tokio::time::error::Elapsed>()
            || says("operation timed out")
            || says("request timed out");
        self.tls |= says("tls handshake") || says("invalid peer certificate");
        self.broken |= says("connection closed")
            || says("error reading a body")
            || says("connection error")
            || says("stream error received");
        self.malformed |=
            says("invalid HTTP") || says("error decoding") || says("message head is too large");
        let Some(io) = error.downcast_ref::<io::Error>() else {
            return error.source();
        };
        self.io = Some(io.kind());
        // An I/O error's source is its content's source: the content itself would be passed over.
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
        if self.timeout || self.io == Some(TimedOut) {
            return Some(Failure::Timeout);
        }
        if self.dns {
            return Some(if self.resolver {
                Failure::Resolver
            } else {
                Failure::NoSuchHost
            });
        }
        // rustls hands its errors on as invalid data; before a connection is up nothing else can be.
        if self.tls || (self.connecting && self.io == Some(InvalidData)) {
            return Some(Failure::Tls);
        }
        let no_route = matches!(
            self.io,
            Some(ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
        );
        if self.connecting || no_route {
            return Some(Failure::Connect);
        }
        if self.malformed || matches!(self.io, Some(InvalidData | InvalidInput)) {
            return Some(Failure::Malformed);
        }
        (self.broken || self.io.is_some()).then_some(Failure::Reset)
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
            ("client error (Connect)", ConnectionRefused, "refused", Failure::Connect),
            ("client error (Connect)", InvalidData, "UnknownIssuer", Failure::Tls),
            ("client error (Connect)", TimedOut, "timed out", Failure::Timeout),
            ("dns error", Other, "Name or service not known", Failure::NoSuchHost),
            ("dns error", Other, "Temporary failure in name resolution", Failure::Resolver),
            ("client error (SendRequest)", ConnectionReset, "reset", Failure::Reset),
            ("client error (SendRequest)", InvalidData, "odd", Failure::Malformed),
        ];
        for (outer, kind, words, failure) in cases {
            let error = Outer(outer, io(kind, words));
            assert_eq!(failure_of(&error), Some(failure), "{outer}: {words}");
        }
    }

    #[test]
    fn an_error_that_is_not_about_the_host_is_no_failure() {
        let error = url::ParseError::EmptyHost;
        assert_eq!(failure_of(&error), None);
    }
}
