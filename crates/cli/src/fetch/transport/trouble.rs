//! Failures that may be this machine's: no descriptor, no route, no resolver.

use std::error::Error;
use std::io;

use politely::core::fault::machine::Trouble;
use politely::core::signal::Failure;
use rustix::io::Errno;

/// Returns what may be wrong with this machine after `error`, which means `failure`.
pub(super) fn trouble_of(error: &(dyn Error + 'static), failure: Failure) -> Option<Trouble> {
    match failure {
        Failure::Resolver => Some(Trouble::Unresolved),
        Failure::Timeout => Some(Trouble::Silent),
        Failure::Connect => {
            of_io(error.downcast_ref()).or_else(|| trouble_of(error.source()?, failure))
        }
        _ => None,
    }
}

fn of_io(error: Option<&io::Error>) -> Option<Trouble> {
    let error = error?;
    match error.raw_os_error().map(Errno::from_raw_os_error)? {
        Errno::MFILE | Errno::NFILE => Some(Trouble::OutOfDescriptors),
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN => Some(Trouble::Silent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Outer(#[source] io::Error);

    fn of(errno: Errno) -> Option<Trouble> {
        trouble_of(&Outer(errno.into()), Failure::Connect)
    }

    #[test]
    fn a_refused_connection_is_the_hosts() {
        assert_eq!(of(Errno::CONNREFUSED), None);
        assert_eq!(of(Errno::NETUNREACH), Some(Trouble::Silent));
        assert_eq!(of(Errno::MFILE), Some(Trouble::OutOfDescriptors));
    }
}
