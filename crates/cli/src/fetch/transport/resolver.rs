//! Looks up the addresses of names with the system's resolver, and keeps its answers for a while.
//!
//! The system's resolver does not tell how long an answer may be kept, so each is kept for the
//! least time. Lookups of one name at a time share one call.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::OnceCell;
use tower::Service;

/// A connector that looks names up here.
pub(super) type Tcp = HttpConnector<Resolver>;

/// The time for which addresses are kept.
const FOUND_FOR: Duration = Duration::from_secs(30);
/// The time for which a failure is kept.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// The number of names from which on those whose time is over are forgotten.
const NAMES_MAX: usize = 10_000;

/// The resolver of a run. Clones share what they know.
#[derive(Clone, Default)]
pub(crate) struct Resolver {
    names: Arc<Mutex<HashMap<Box<str>, Arc<Slot>>>>,
    /// Whether only IPv6 addresses are returned, or with `false` only IPv4 ones.
    is_ipv6: Option<bool>,
}

/// What is known about a name.
#[derive(Default)]
struct Slot(OnceCell<Known>);

struct Known {
    until: Instant,
    answer: Result<Vec<IpAddr>, Failed>,
}

/// An error of the resolver, from which an equal one can be made.
struct Failed {
    code: Option<i32>,
    text: String,
}

impl Resolver {
    /// Returns a resolver that finds addresses of one version of IP only, if `is_ipv6` says so.
    pub(crate) fn of_version(is_ipv6: Option<bool>) -> Self {
        Self {
            is_ipv6,
            ..Self::default()
        }
    }

    /// Returns the addresses of `name`, in the order in which to try them.
    ///
    /// # Errors
    /// The system's resolver failed, now or a few seconds ago.
    pub(crate) async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let slot = self.slot(name, Instant::now());
        let known = slot.0.get_or_init(|| ask(name)).await;
        let mut found = known.result()?;
        if let Some(is_ipv6) = self.is_ipv6 {
            found.retain(|address| address.is_ipv6() == is_ipv6);
            if found.is_empty() {
                let version = if is_ipv6 { "IPv6" } else { "IPv4" };
                let text = format!("failed to lookup address: {name} has no {version} address");
                return Err(io::Error::other(text));
            }
        }
        Ok(found)
    }

    /// Returns the place of what is known about `name` at `now`.
    fn slot(&self, name: &str, now: Instant) -> Arc<Slot> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX && !names.contains_key(name) {
            names.retain(|_, slot| !slot.is_over(now));
            if names.len() >= NAMES_MAX {
                names.clear();
            }
        }
        let slot = names.entry(name.into()).or_default();
        if slot.is_over(now) {
            *slot = Arc::default();
        }
        Arc::clone(slot)
    }
}

impl Slot {
    fn is_over(&self, now: Instant) -> bool {
        self.0.get().is_some_and(|known| known.until <= now)
    }
}

impl Known {
    /// Returns an answer that came at `now`.
    fn at(now: Instant, answer: io::Result<Vec<IpAddr>>) -> Self {
        let answer = answer.map_err(|why| Failed {
            code: why.raw_os_error(),
            text: why.to_string(),
        });
        let kept_for = match &answer {
            Ok(_) => FOUND_FOR,
            Err(Failed { code: None, .. }) => FAILED_FOR,
            // This machine failed before it asked, so the answer says nothing about the name.
            Err(Failed { code: Some(_), .. }) => Duration::ZERO,
        };
        Self {
            until: now + kept_for,
            answer,
        }
    }

    fn result(&self) -> io::Result<Vec<IpAddr>> {
        match &self.answer {
            Ok(addresses) => Ok(addresses.clone()),
            Err(Failed {
                code: Some(code), ..
            }) => Err(io::Error::from_raw_os_error(*code)),
            Err(Failed { text, .. }) => Err(io::Error::other(text.clone())),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Connectable;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        connectable(async move { resolver.lookup(name.as_str()).await })
    }
}

/// The addresses of a name, as a connector takes them.
pub(crate) type Connectable =
    Pin<Box<dyn Future<Output = io::Result<std::vec::IntoIter<SocketAddr>>> + Send>>;

/// Gives the addresses that are `found` to a connector, which sets the port.
pub(crate) fn connectable(
    found: impl Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
) -> Connectable {
    Box::pin(async {
        let found = found.await?.into_iter();
        let with_port = found.map(|address| SocketAddr::new(address, 0));
        Ok(with_port.collect::<Vec<_>>().into_iter())
    })
}

/// Asks the system's resolver for `name`.
async fn ask(name: &str) -> Known {
    let found = tokio::net::lookup_host((name, 0)).await;
    Known::at(
        Instant::now(),
        found.map(|found| found.map(|address| address.ip()).collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_longer_than_failures_and_faults_of_this_machine_not_at_all() {
        let resolver = Resolver::default();
        let began = Instant::now();
        let known = |after: f64, name: &str| {
            let slot = resolver.slot(name, began + Duration::from_secs_f64(after));
            slot.0.get().map(|known| known.result().is_ok())
        };
        let here: IpAddr = [127, 0, 0, 1].into();
        let answers = [
            ("found", Ok(vec![here])),
            ("failed", Err(io::Error::other("failed to lookup address"))),
            ("ours", Err(io::Error::from_raw_os_error(24))),
        ];
        for (name, answer) in answers {
            assert_eq!(known(0.0, name), None);
            let slot = resolver.slot(name, began);
            assert!(slot.0.set(Known::at(began, answer)).is_ok());
        }
        assert_eq!(known(0.0, "ours"), None);
        assert_eq!(known(4.9, "failed"), Some(false));
        assert_eq!(known(5.0, "failed"), None);
        assert_eq!(known(29.9, "found"), Some(true));
        assert_eq!(known(30.0, "found"), None);
    }

    #[test]
    fn an_error_is_told_again_as_it_came() {
        let text = "failed to lookup address information: Name or service not known";
        let known = Known::at(Instant::now(), Err(io::Error::other(text)));
        assert_eq!(known.result().unwrap_err().to_string(), text);
        let ours = Known::at(Instant::now(), Err(io::Error::from_raw_os_error(24)));
        assert_eq!(ours.result().unwrap_err().raw_os_error(), Some(24));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let resolver = Resolver::default();
        let now = Instant::now();
        for number in 0..3 * NAMES_MAX {
            resolver.slot(&format!("host-{number}"), now);
        }
        assert!(resolver.names.lock().unwrap().len() <= NAMES_MAX);
    }
}
