//! Errors of clients that may be this machine's fault: no descriptor, no route, no resolver.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

use politely_core::fault::machine::Trouble;
use politely_core::signal::Failure;

use super::failure::CAUSES_MAX;

/// `ENFILE` and `EMFILE`, which have these numbers on Linux, macOS and the BSDs. The standard
/// library has no kind for them.
const NO_DESCRIPTOR: [i32; 2] = [23, 24];

/// Returns what may be wrong with this machine after `error`, which means `failure`.
pub fn trouble_of(error: &(dyn Error + 'static), failure: Failure) -> Option<Trouble> {
    if failure != Failure::Connect {
        return Trouble::of(failure);
    }
    let causes = successors(Some(error), |&error| error.source());
    let mut causes = causes.take(CAUSES_MAX);
    causes.find_map(|error| of_io(error.downcast_ref()?))
}

fn of_io(error: &io::Error) -> Option<Trouble> {
    match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::NetworkDown => {
            Some(Trouble::Silent)
        }
        _ if NO_DESCRIPTOR.contains(&error.raw_os_error()?) => Some(Trouble::OutOfDescriptors),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_refused_connection_is_the_hosts() {
        let of = |error: io::Error| trouble_of(&Outer(error), Failure::Connect);
        assert_eq!(of(ErrorKind::ConnectionRefused.into()), None);
        let silent = Some(Trouble::Silent);
        assert_eq!(of(ErrorKind::NetworkUnreachable.into()), silent);
        assert_eq!(of(ErrorKind::HostUnreachable.into()), silent);
        let out = of(io::Error::from_raw_os_error(24));
        assert_eq!(out, Some(Trouble::OutOfDescriptors));
    }
}
