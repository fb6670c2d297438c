//! Whether this machine works: its link, its resolver, and the room on its disks.
//!
//! While it does not, failures say nothing about hosts and their pages. The sign is that several
//! hosts fail in a row in ways that hosts seldom fail in, and none answers between. Then requests
//! pause, and one request every [`PROBE_EVERY`] finds out whether a host answers again.
//!
//! A host that never answered may not exist, so its silence is a sign only beside that of a host
//! which did answer. Its name may be one that no resolver can look up: that is a sign until another
//! host answers, and hosts that answered before go on meanwhile. Few hosts may well be down
//! together. So a pause for fewer than [`HOSTS_SURE`] hosts that answered ends after
//! [`UNSURE_MAX`], and then the hosts are judged as ever, until one answers. No host can take this
//! machine's descriptors: a pause without them lasts as long as the probes find none.
//!
//! A full disk shows itself at the first write that fails. Answers could not be kept then, so no
//! request is sent until the caller finds room: its probes are writes.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use crate::Timestamp;
use crate::signal::Failure;

/// The time between two probes.
pub const PROBE_EVERY: Duration = Duration::from_secs(3);
/// The number of hosts whose names the resolver cannot look up from which on it is at fault.
const UNRESOLVED_MIN: usize = 2;
/// The number of hosts that answered before and are silent now from which on the link is at fault.
const SILENT_MIN: usize = 3;
/// The most failing hosts that are remembered, of those that answered before and of others.
const FAILING_MAX: usize = 64;
/// The most hosts that are remembered as unresolved while others answered.
const UNRESOLVED_MAX: usize = 1_024;
/// The number of hosts from which on a pause has no end of its own. One of so many silent hosts is
/// enough if it answered before.
pub const HOSTS_SURE: usize = 5;
/// The longest pause for fewer hosts.
pub const UNSURE_MAX: Duration = Duration::from_mins(5);

/// A failure that may be this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The resolver did not answer, or failed.
    Unresolved,
    /// No route, or no answer in time.
    Silent,
    /// This machine has no descriptor left.
    OutOfDescriptors,
}

impl Trouble {
    /// Returns the trouble that a failure may show by itself. A connection that failed needs its
    /// error: the host refuses it, or there is no route.
    pub const fn of(failure: Failure) -> Option<Self> {
        match failure {
            Failure::Resolver => Some(Self::Unresolved),
            Failure::Timeout => Some(Self::Silent),
            _ => None,
        }
    }
}

/// The state of this machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The hosts that failed since the last answer.
    failing: SmallVec<[Failing; 4]>,
    /// Hosts that never answered, and whose names could not be looked up before another one
    /// answered.
    unresolved: VecDeque<u32>,
    pause: Option<Pause>,
    /// Whether a pause ended without an answer.
    is_unsure: bool,
    /// The time since when a disk is full.
    full_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    /// The host's hash.
    host: u32,
    trouble: Trouble,
    has_answered: bool,
    /// Whether the failure is no sign by itself, because the host may not exist.
    is_stranger: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Timestamp,
    next_probe: Timestamp,
    /// The time since when hosts may be down instead, or `None` while no descriptor is left.
    unsure_since: Option<Timestamp>,
}

impl Machine {
    /// Records that a host answered. Returns how long requests had paused, if they did.
    #[inline]
    pub fn answered(&mut self, now: Timestamp) -> Option<Duration> {
        if self.failing.is_empty() {
            return None;
        }
        let pause = self.pause.take();
        self.is_unsure = false;
        let unresolved = self.failing.drain(..).filter(|host| {
            host.trouble == Trouble::Unresolved && !host.has_answered && !host.is_stranger
        });
        self.unresolved.extend(unresolved.map(|host| host.host));
        let surplus = self.unresolved.len().saturating_sub(UNRESOLVED_MAX);
        self.unresolved.drain(..surplus);
        pause.map(|pause| now.since(pause.since))
    }

    /// Records that a request to `host` failed, which answered before if `has_answered`. Returns
    /// whether this machine is at fault, so the failure counts against nobody.
    pub fn failed(
        &mut self,
        now: Timestamp,
        host: u32,
        has_answered: bool,
        trouble: Trouble,
    ) -> bool {
        let may_not_exist = match trouble {
            Trouble::Unresolved => self.unresolved.contains(&host),
            Trouble::Silent => true,
            Trouble::OutOfDescriptors => false,
        };
        let alike = |known: &&Failing| known.has_answered == has_answered;
        if self.failing.iter().filter(alike).count() < FAILING_MAX
            && self.failing.iter().all(|known| known.host != host)
        {
            self.failing.push(Failing {
                host,
                trouble,
                has_answered,
                is_stranger: may_not_exist && !has_answered,
            });
        }
        let count = |of| {
            (self.failing.iter())
                .filter(|host| host.trouble == of && !host.is_stranger)
                .count()
        };
        let is_sure = trouble == Trouble::OutOfDescriptors;
        let silent = count(Trouble::Silent);
        let is_found = self.pause.is_some()
            || count(Trouble::Unresolved) >= UNRESOLVED_MIN
            || silent >= SILENT_MIN
            || (silent > 0 && self.failing.len() >= HOSTS_SURE);
        if !is_sure && (!is_found || self.is_unsure) {
            return false;
        }
        self.is_unsure = false;
        let pause = self.pause.get_or_insert(Pause {
            since: now,
            next_probe: now + PROBE_EVERY,
            unsure_since: None,
        });
        let unsure_since = pause.unsure_since.unwrap_or(now);
        pause.unsure_since = (!is_sure).then_some(unsure_since);
        true
    }

    /// Records that a write failed at `now` because a disk is full. Returns whether requests pause
    /// from now on.
    pub fn out_of_room(&mut self, now: Timestamp) -> bool {
        let is_new = self.full_since.is_none();
        self.full_since.get_or_insert(now);
        is_new
    }

    /// Records that there is room again. Returns how long the disk was full, if it was.
    pub fn has_room(&mut self, now: Timestamp) -> Option<Duration> {
        self.full_since.take().map(|since| now.since(since))
    }

    /// Returns whether a disk is full.
    pub fn is_out_of_room(&self) -> bool {
        self.full_since.is_some()
    }

    /// Returns whether a request may be sent at `now` to a host, which answered before if
    /// `has_answered`. While requests pause, that is a probe.
    ///
    /// # Errors
    /// The time of the next probe.
    pub fn may_send(&mut self, now: Timestamp, has_answered: bool) -> Result<(), Timestamp> {
        if self.full_since.is_some() {
            return Err(now + PROBE_EVERY);
        }
        let Some(pause) = &mut self.pause else {
            return Ok(());
        };
        let proven = self.failing.iter().filter(|host| !host.is_stranger);
        if proven.count() < HOSTS_SURE
            && (pause.unsure_since).is_some_and(|since| now.since(since) >= UNSURE_MAX)
        {
            self.pause = None;
            self.is_unsure = true;
            return Ok(());
        }
        let is_of_unknown_names = || {
            let mut failing = self.failing.iter();
            failing.all(|host| host.trouble == Trouble::Unresolved && !host.has_answered)
        };
        if has_answered && is_of_unknown_names() {
            return Ok(());
        }
        if now < pause.next_probe {
            return Err(pause.next_probe);
        }
        pause.next_probe = now + PROBE_EVERY;
        Ok(())
    }

    /// Returns since when requests pause.
    pub fn paused_since(&self) -> Option<Timestamp> {
        let pause = self.pause.map(|pause| pause.since);
        self.full_since.into_iter().chain(pause).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn names_of_two_hosts_that_cannot_be_looked_up_pause_requests() {
        let mut machine = Machine::default();
        assert!(!machine.failed(at(0), 1, true, Trouble::Unresolved));
        assert!(
            !machine.failed(at(1), 1, true, Trouble::Unresolved),
            "the same host"
        );
        assert_eq!(machine.may_send(at(1), false), Ok(()));
        assert!(machine.failed(at(2), 2, true, Trouble::Unresolved));
        assert_eq!(machine.may_send(at(2), false), Err(at(5)));
        assert_eq!(machine.may_send(at(5), false), Ok(()), "a probe");
        assert_eq!(machine.may_send(at(5), false), Err(at(8)));
        assert!(machine.failed(at(6), 1, true, Trouble::Silent));
        assert_eq!(machine.answered(at(9)), Some(Duration::from_secs(7)));
        assert_eq!(machine.may_send(at(9), false), Ok(()));
    }

    #[test]
    fn an_answer_between_shows_that_the_machine_works() {
        let mut machine = Machine::default();
        for secs in 0..100 {
            assert!(!machine.failed(at(secs), 2 * secs as u32, true, Trouble::Silent));
            assert!(!machine.failed(at(secs), 2 * secs as u32 + 1, true, Trouble::Silent));
            assert_eq!(machine.answered(at(secs)), None);
        }
    }

    #[test]
    fn a_pause_for_few_hosts_ends_and_one_for_many_does_not() {
        for (hosts, sends) in [(3, true), (5, false)] {
            let mut machine = Machine::default();
            for host in 0..hosts {
                machine.failed(at(0), host, true, Trouble::Silent);
            }
            let late = at(UNSURE_MAX.as_secs());
            assert_eq!(machine.may_send(late, false), Ok(()), "a probe or more");
            assert_eq!(machine.may_send(late, false).is_ok(), sends);
            assert_eq!(machine.failed(late, 0, true, Trouble::Silent), !sends);
        }
    }

    /// Records that `hosts` are silent, in turn. Returns whether the last one is excused.
    fn silent(machine: &mut Machine, hosts: std::ops::Range<u32>, have_answered: bool) -> bool {
        hosts
            .map(|host| machine.failed(at(0), host, have_answered, Trouble::Silent))
            .last()
            .unwrap()
    }

    #[test]
    fn silence_of_hosts_that_never_answered_counts_beside_that_of_one_that_did() {
        let mut machine = Machine::default();
        assert!(!silent(&mut machine, 0..100, false), "they may not exist");
        assert!(silent(&mut machine, 100..101, true));
        assert!(silent(&mut machine, 101..110, false), "it is paused");
        machine.answered(at(1));
        assert!(!silent(&mut machine, 100..101, true));
        assert!(!silent(&mut machine, 0..3, false), "four are too few");
        assert!(silent(&mut machine, 3..4, false));
    }

    #[test]
    fn a_pause_for_one_host_that_answered_and_many_that_never_did_ends() {
        let mut machine = Machine::default();
        silent(&mut machine, 0..1, true);
        silent(&mut machine, 1..100, false);
        let end = at(UNSURE_MAX.as_secs());
        assert_eq!(
            [machine.may_send(end, false), machine.may_send(end, false)],
            [Ok(()); 2]
        );
        assert!(!silent(&mut machine, 1..100, false), "judged as ever");
    }

    #[test]
    fn names_that_nobody_can_look_up_stop_no_host_that_answers() {
        let mut machine = Machine::default();
        let lame = 0..100;
        for host in lame.clone() {
            machine.failed(at(0), host, false, Trouble::Unresolved);
        }
        assert!(machine.may_send(at(1), false).is_err());
        assert_eq!(machine.may_send(at(1), true), Ok(()), "it has an address");
        assert!(machine.answered(at(1)).is_some());
        for host in lame.take(FAILING_MAX) {
            let is_excused = machine.failed(at(2), host, false, Trouble::Unresolved);
            assert!(!is_excused, "another host answered meanwhile");
            assert_eq!(machine.may_send(at(2), false), Ok(()));
        }
        machine.failed(at(3), 200, true, Trouble::Unresolved);
        assert!(machine.failed(at(3), 201, true, Trouble::Unresolved));
        assert!(machine.may_send(at(3), true).is_err(), "it is the resolver");
    }

    #[test]
    fn on_a_full_disk_nothing_is_sent_until_there_is_room() {
        let mut machine = Machine::default();
        assert!(machine.out_of_room(at(0)));
        assert!(!machine.out_of_room(at(1)), "the same pause");
        machine.failed(at(1), 1, true, Trouble::OutOfDescriptors);
        machine.answered(at(2));
        for secs in 2..100 {
            assert_eq!(
                machine.may_send(at(secs), false),
                Err(at(secs + 3)),
                "no probe"
            );
        }
        assert_eq!(machine.paused_since(), Some(at(0)));
        assert_eq!(machine.has_room(at(100)), Some(Duration::from_secs(100)));
        assert_eq!(machine.may_send(at(100), false), Ok(()));
        assert_eq!(machine.has_room(at(101)), None);
    }

    #[test]
    fn without_descriptors_a_single_host_is_enough() {
        let mut machine = Machine::default();
        assert!(machine.failed(at(0), 1, true, Trouble::OutOfDescriptors));
        assert_eq!(machine.may_send(at(1), false), Err(at(3)));
    }

    proptest! {
        /// Every probe finds no descriptor. Requests under way fail too, and hosts failed before.
        #[test]
        fn without_descriptors_requests_pause_and_no_host_is_charged_until_a_probe_succeeds(
            silent_before in 0..HOSTS_SURE as u32,
            steps in prop::collection::vec((0_u64..200, 0_u32..10, under_way()), 1..200),
        ) {
            let mut machine = Machine::default();
            for host in 0..silent_before {
                machine.failed(at(0), host, true, Trouble::Silent);
            }
            let begin = at(UNSURE_MAX.as_secs());
            machine.may_send(begin, false).unwrap();
            let mut now = begin;
            prop_assert!(machine.failed(now, 0, true, Trouble::OutOfDescriptors));
            let since = machine.paused_since();
            prop_assert!(since.is_some());
            for (secs, host, under_way) in steps {
                now = now + Duration::from_secs(secs);
                if machine.may_send(now, false).is_ok() {
                    prop_assert_eq!(machine.may_send(now, false), Err(now + PROBE_EVERY), "one probe");
                    prop_assert!(machine.failed(now, host, true, Trouble::OutOfDescriptors));
                }
                if let Some(trouble) = under_way {
                    prop_assert!(machine.failed(now, host, true, trouble), "the host is charged");
                }
                prop_assert_eq!(machine.paused_since(), since);
            }
            prop_assert_eq!(machine.answered(now), since.map(|since| now.since(since)));
            prop_assert_eq!([machine.may_send(now, false), machine.may_send(now, false)], [Ok(()); 2]);
        }
    }

    fn under_way() -> impl Strategy<Value = Option<Trouble>> {
        prop::option::of(prop_oneof![
            Just(Trouble::Silent),
            Just(Trouble::Unresolved)
        ])
    }

    #[test]
    fn a_host_that_is_silent_once_there_are_descriptors_ends_the_pause_in_minutes() {
        let mut machine = Machine::default();
        machine.failed(at(0), 1, true, Trouble::OutOfDescriptors);
        machine.failed(at(1000), 1, true, Trouble::Silent);
        let end = at(1000 + UNSURE_MAX.as_secs());
        assert_eq!(machine.may_send(end, false), Ok(()));
        assert_eq!(machine.may_send(end, false), Ok(()));
        assert!(!machine.failed(end, 1, true, Trouble::Silent));
    }
}
