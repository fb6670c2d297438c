//! Caps per caller: how much of a resource each address or client holds at a time.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// The number of units that each holder has taken. A holder without units uses no memory.
pub(crate) struct Tally<K> {
    held: Mutex<HashMap<K, usize, foldhash::fast::RandomState>>,
    most: AtomicUsize,
}

/// Units taken from a [`Tally`]. They are released when dropped.
pub(crate) struct Share<K: Hash + Eq + Copy> {
    tally: Arc<Tally<K>>,
    holder: K,
    units: usize,
}

impl<K: Hash + Eq + Copy> Tally<K> {
    /// Creates a tally that gives each holder at most `most` units.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            most: AtomicUsize::new(most),
        })
    }

    /// Returns the most units of one holder.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the cap for units taken from now on.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Takes `units` for `holder`. Returns `None` if the holder would exceed the cap.
    pub(crate) fn take(self: &Arc<Self>, holder: K, units: usize) -> Option<Share<K>> {
        let mut held = self.held.lock();
        let before = held.get(&holder).copied().unwrap_or(0);
        let after = before.saturating_add(units);
        if after > self.most() {
            return None;
        }
        held.insert(holder, after);
        Some(Share {
            tally: Arc::clone(self),
            holder,
            units,
        })
    }
}

impl<K: Hash + Eq + Copy> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.tally.held.lock();
        if let Some(units) = held.get_mut(&self.holder) {
            *units = units.saturating_sub(self.units);
            if *units == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

/// Returns the address that caps count by. All addresses of an IPv6 /64 count as one peer.
pub(crate) fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_takes_no_more_than_its_cap_and_leaves_nothing_behind() {
        let tally = Tally::new(3);
        let one = tally.take(1_u64, 2).unwrap();
        assert!(tally.take(1, 2).is_none());
        let rest = tally.take(1, 1).unwrap();
        assert!(tally.take(2, 3).is_some(), "another holder is not affected");
        drop(one);
        assert!(tally.take(1, 3).is_none());
        assert!(tally.take(1, usize::MAX).is_none());
        drop(rest);
        assert!(tally.held.lock().is_empty());
    }

    #[test]
    fn a_peer_is_an_address_of_ipv4_or_a_network_of_ipv6() {
        let of = |text: &str| peer(text.parse().unwrap()).to_string();
        assert_eq!(of("203.0.113.9"), "203.0.113.9");
        assert_eq!(of("::ffff:203.0.113.9"), "203.0.113.9");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
