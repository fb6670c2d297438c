//! Wrong tokens: a budget per peer, and the log line about them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::often::Often;
use crate::tally;

/// Wrong tokens that a peer may send in a burst.
const BURST: f64 = 100.0;
/// Wrong tokens that a peer may send per second after the burst.
const PER_S: f64 = 1.0;
/// The most peers that are remembered.
const PEERS_MAX: usize = 16_384;
/// The most right tokens that are remembered per peer.
const KNOWN_MAX: usize = 8;

/// The peer of a connection.
pub(crate) struct Peer {
    address: IpAddr,
    /// The mark of the last right token, or 0.
    known: AtomicU64,
}

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self {
            address: address.to_canonical(),
            known: AtomicU64::new(0),
        }
    }

    /// Returns the peer's address, for logs and the audit log.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }
}

/// A limit on wrong tokens per peer.
///
/// A peer without budget is refused whatever its token is, unless it has sent the same right token
/// before. So a worker is not locked out by another worker behind the same address.
#[derive(Default)]
pub(super) struct Logins {
    peers: Mutex<HashMap<IpAddr, Books, foldhash::fast::RandomState>>,
    log: Often,
}

struct Books {
    left: f64,
    at: Instant,
    /// The marks of right tokens.
    known: SmallVec<[u64; 2]>,
}

impl Books {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * PER_S).min(BURST);
        self.at = now;
    }
}

impl Logins {
    /// Returns whether a call with a right token is answered.
    pub(super) fn is_let_in(&self, peer: &Peer, mark: u64, now: Instant) -> bool {
        // The usual case takes no lock.
        if peer.known.load(Ordering::Relaxed) == mark {
            return true;
        }
        let is_let_in = self.with(peer, now, |books| {
            if books.known.contains(&mark) {
                return true;
            }
            if books.left < 1.0 {
                return false;
            }
            if books.known.len() >= KNOWN_MAX {
                books.known.remove(0);
            }
            books.known.push(mark);
            true
        });
        if is_let_in {
            peer.known.store(mark, Ordering::Relaxed);
        }
        is_let_in
    }

    /// Counts a wrong token. Returns whether the peer had budget for it.
    pub(super) fn fail(&self, peer: &Peer, now: Instant) -> bool {
        ::metrics::counter!("politely_login_failures_total").increment(1);
        if let Some(count) = self.log.note(now) {
            tracing::warn!(
                "refused {count} calls with a wrong token, the last from {}; check its token file",
                peer.address
            );
        }
        self.with(peer, now, |books| {
            let has_budget = books.left >= 1.0;
            if has_budget {
                books.left -= 1.0;
            }
            has_budget
        })
    }

    fn with<T>(&self, peer: &Peer, now: Instant, then: impl FnOnce(&mut Books) -> T) -> T {
        let address = tally::peer(peer.address);
        let mut peers = self.peers.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&address) {
            let mut times: Vec<_> = peers.values().map(|books| books.at).collect();
            let (_, oldest, _) = times.select_nth_unstable(PEERS_MAX / 4);
            let oldest = *oldest;
            peers.retain(|_, books| books.at > oldest);
        }
        let books = peers.entry(address).or_insert_with(|| Books {
            left: BURST,
            at: now,
            known: SmallVec::new(),
        });
        books.refill(now);
        then(books)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::new(address.parse().unwrap())
    }

    #[test]
    fn a_peer_that_guesses_is_slowed_down_and_others_are_not() {
        let (logins, now) = (Logins::default(), Instant::now());
        let (guesser, other) = (peer("203.0.113.9"), peer("203.0.113.10"));
        let answered = (0..10_000).filter(|_| logins.fail(&guesser, now)).count();
        assert_eq!(answered, BURST as usize);
        assert!(!logins.is_let_in(&peer("203.0.113.9"), 7, now));
        assert!(logins.fail(&other, now) && logins.is_let_in(&other, 7, now));
        let later = now + Duration::from_secs(10);
        let answered = (0..10_000).filter(|_| logins.fail(&guesser, later)).count();
        assert_eq!(answered, 10);
    }

    #[test]
    fn a_token_that_was_right_before_stays_right_beside_a_guesser() {
        let (logins, now) = (Logins::default(), Instant::now());
        assert!(logins.is_let_in(&peer("::1"), 7, now));
        while logins.fail(&peer("::1"), now) {}
        assert!(logins.is_let_in(&peer("::1"), 7, now), "a new connection");
        assert!(!logins.is_let_in(&peer("::1"), 8, now), "another token");
    }

    #[test]
    fn the_table_of_peers_is_bounded() {
        let (logins, now) = (Logins::default(), Instant::now());
        for i in 0..3 * PEERS_MAX as u32 {
            let address = std::net::Ipv4Addr::from_bits(i);
            logins.fail(
                &Peer::new(address.into()),
                now + Duration::from_millis(i.into()),
            );
        }
        assert!(logins.peers.lock().len() <= PEERS_MAX);
    }
}
