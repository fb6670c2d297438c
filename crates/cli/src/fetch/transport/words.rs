//! The words for an error of the transport, in one line.

use std::error::Error;
use std::io;

use rustls::AlertDescription::{HandshakeFailure, InsufficientSecurity};
use rustls::pki_types::InvalidDnsNameError;

/// The reason of most handshakes that a server refuses. It knows only what this client refuses.
const NO_CIPHER: &str = "no cipher in common (the server may know only CBC or RSA key exchange): ";
/// The reason of a name that rustls refuses before it connects. It checks no certificate for it.
const NO_NAME: &str = "no certificate can be checked for the host's name, since a label of it \
                       begins or ends with a hyphen, or is longer than 63 bytes: ";

/// Returns the words of the innermost error. The outer ones only repeat the URL.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let line = text.lines().next().unwrap_or_default().chars().take(200);
    if innermost.is::<InvalidDnsNameError>() {
        return NO_NAME.chars().chain(line).collect();
    }
    match tls(error) {
        Some(rustls::Error::AlertReceived(HandshakeFailure | InsufficientSecurity)) => {
            NO_CIPHER.chars().chain(line).collect()
        }
        _ => line.collect(),
    }
}

/// Returns the error of TLS that is `error` or one of its causes.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    // The source of an I/O error is the source of its content, and not the content.
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(content) => tls(content),
        None => tls(error.source()?),
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_handshake_without_a_common_cipher_names_the_reason() {
        let refused = rustls::Error::AlertReceived(HandshakeFailure);
        let error = io::Error::other(io::Error::other(refused));
        let words = "no cipher in common (the server may know only CBC or RSA key exchange): \
                     received fatal alert: HandshakeFailure";
        assert_eq!(innermost(&error), words);
        let error = io::Error::from_raw_os_error(111);
        assert_eq!(innermost(&error), "Connection refused");
    }

    #[test]
    fn a_name_with_a_hyphen_at_an_end_of_a_label_names_the_reason() {
        for name in ["foo-.example", "-foo.example", "a.foo-"] {
            let error = ServerName::try_from(name).unwrap_err();
            assert_eq!(innermost(&error), format!("{NO_NAME}invalid dns name"));
        }
        for name in ["foo_.example", "_foo.example", "_", "a--b.example."] {
            ServerName::try_from(name).unwrap();
        }
    }
}
