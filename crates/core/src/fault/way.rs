//! The ways from this machine to all hosts, such as proxies, and which of them are set aside.
//!
//! A way that fails says nothing about a host or its pages. So it is set aside for all hosts, and
//! requests take another way at once. After [`ASIDE_MIN`] one request tries it again; each further
//! failure doubles the time, up to [`ASIDE_MAX`]. A request that gets through puts the way back.
//!
//! A proxy may refuse a host by its own rules. It is not set aside for that while requests for
//! other hosts get through.
//!
//! ```text
//!              failed              its time has passed
//!   Working ----------> Aside -------------------------> Probed
//!      ^                  ^                               |  |
//!      |                  +---- failed: twice as long ----+  |
//!      +------------------------ worked ---------------------+
//! ```

use std::time::Duration;

use crate::Timestamp;

/// How long a way is set aside after its first failure.
pub const ASIDE_MIN: Duration = Duration::from_secs(5);
/// The longest time for which a way is set aside.
pub const ASIDE_MAX: Duration = Duration::from_mins(10);
/// A way that is set aside for longer is hopeless for a request that can take no other.
const HOPELESS: Duration = Duration::from_mins(1);
/// A probe without a result counts as lost after this time.
const PROBE_MAX: Duration = Duration::from_mins(1);
/// While a probe is under way, other requests ask this often whether the way works again.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// A way that refuses this many hosts in a row refuses all hosts.
const REFUSED_MAX: usize = 4;

/// All ways, by number.
#[derive(Clone, Debug)]
pub struct Ways(Vec<Way>);

#[derive(Clone, Debug, Default)]
struct Way {
    state: State,
    /// The last host for which a request got through.
    worked_for: Option<u64>,
    /// The hosts that the way refused since then.
    refused: Vec<u64>,
    failures: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Working,
    /// No request takes the way before `until`.
    Aside { until: Timestamp, length: Duration },
    /// One request takes the way. Its result counts as lost at `lost_at`.
    Probed {
        lost_at: Timestamp,
        length: Duration,
    },
}

impl State {
    /// Returns when to ask again for the way after `now`.
    fn next_try(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Working => Timestamp::ZERO,
            Self::Aside { until, .. } => until,
            Self::Probed { lost_at, .. } => lost_at.min(now + PROBE_WAIT),
        }
    }
}

impl Ways {
    /// Returns `count` ways that work as far as is known, at least one.
    pub fn new(count: usize) -> Self {
        Self(vec![Way::default(); count.max(1)])
    }

    /// Returns the way to take at `now`: `preferred` if possible, else the next one in order. A way
    /// that is tried again after its time is taken once, until [`Ways::worked`] or
    /// [`Ways::failed`] tells the result.
    ///
    /// # Errors
    /// Every way is set aside. The error is the time at which to ask again.
    pub fn choose(&mut self, now: Timestamp, preferred: usize) -> Result<usize, Timestamp> {
        let count = self.0.len();
        let mut soonest = Timestamp::NEVER;
        for number in (0..count).map(|step| (preferred % count + step) % count) {
            match self.choose_only(now, number) {
                Ok(number) => return Ok(number),
                Err(at) => soonest = soonest.min(at),
            }
        }
        Err(soonest)
    }

    /// Returns `way` if it may be taken at `now`, as [`Ways::choose`] does, for a request that can
    /// take no other. A page that a host refused through one way is not asked for through another.
    ///
    /// # Errors
    /// The way is set aside. The error is the time at which to ask again.
    pub fn choose_only(&mut self, now: Timestamp, way: usize) -> Result<usize, Timestamp> {
        let Some(Way { state, .. }) = self.0.get_mut(way) else {
            return Err(Timestamp::NEVER);
        };
        match *state {
            State::Working => Ok(way),
            State::Aside { until: at, length }
            | State::Probed {
                lost_at: at,
                length,
            } if at <= now => {
                let lost_at = now + PROBE_MAX;
                *state = State::Probed { lost_at, length };
                Ok(way)
            }
            state => Err(state.next_try(now)),
        }
    }

    /// Returns whether `way` failed so often, while another one works, that a request that can take
    /// no other ends.
    pub fn is_hopeless(&self, way: usize) -> bool {
        let state = self.0.get(way).map(|way| way.state);
        let another_works = self.next_try(Timestamp::ZERO) == Timestamp::ZERO;
        another_works && matches!(state, Some(State::Aside { length, .. }) if length > HOPELESS)
    }

    /// Returns when to ask again for a way after `now`: [`Timestamp::ZERO`] if one works, else the
    /// end of the shortest time aside, or of a short wait for the result of a probe.
    pub fn next_try(&self, now: Timestamp) -> Timestamp {
        let times = self.0.iter().map(|way| way.state.next_try(now));
        times.min().unwrap_or(Timestamp::ZERO)
    }

    /// Records that a request for `host`, a hash, got through on `way`: the host answered, or
    /// failed behind it.
    pub fn worked(&mut self, way: usize, host: u64) {
        if let Some(way) = self.0.get_mut(way) {
            way.state = State::Working;
            way.worked_for = Some(host);
            way.refused.clear();
        }
    }

    /// Records that `way` refused a request for `host`, a hash. Returns whether it refuses this
    /// host and not others. If not, the way itself failed: [`Ways::failed`].
    pub fn refused(&mut self, way: usize, host: u64) -> bool {
        let Some(way) = self.0.get_mut(way) else {
            return false;
        };
        let serves_another = way.worked_for.is_some_and(|other| other != host);
        if !serves_another || !matches!(way.state, State::Working) {
            return false;
        }
        if !way.refused.contains(&host) {
            way.refused.push(host);
        }
        way.refused.len() < REFUSED_MAX
    }

    /// Records that `way` itself failed at `now`. Returns the time for which it is set aside, if
    /// this failure sets it aside anew.
    pub fn failed(&mut self, now: Timestamp, way: usize) -> Option<Duration> {
        let way = self.0.get_mut(way)?;
        way.failures = way.failures.saturating_add(1);
        let length = match way.state {
            State::Working => ASIDE_MIN,
            State::Probed { length, .. } => length.saturating_mul(2).min(ASIDE_MAX),
            // The request left before the way was set aside.
            State::Aside { .. } => return None,
        };
        let until = now + length;
        way.state = State::Aside { until, length };
        Some(length)
    }

    /// Returns whether a request ever got through on any way.
    pub fn has_worked(&self) -> bool {
        self.0.iter().any(|way| way.worked_for.is_some())
    }

    /// Returns how often `way` failed.
    pub fn failures(&self, way: usize) -> u64 {
        self.0.get(way).map_or(0, |way| way.failures)
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
    fn a_failed_way_is_left_out_and_the_next_one_is_taken() {
        let mut ways = Ways::new(3);
        assert_eq!(ways.choose(at(0), 1), Ok(1));
        assert_eq!(ways.failed(at(0), 1), Some(ASIDE_MIN));
        assert_eq!(ways.failed(at(0), 1), None, "an earlier request");
        assert_eq!(ways.choose(at(4), 1), Ok(2));
        assert_eq!(ways.choose(at(4), 7), Ok(2));
        assert_eq!((ways.failures(1), ways.failures(2)), (2, 0));
    }

    #[test]
    fn one_request_probes_a_way_and_each_failure_doubles_the_time() {
        let mut ways = Ways::new(1);
        let mut now = at(0);
        ways.failed(now, 0);
        let mut lengths = Vec::new();
        for _ in 0..9 {
            let until = ways.choose(now, 0).unwrap_err();
            assert_eq!(ways.choose(until, 0), Ok(0));
            assert!(ways.choose(until, 0).is_err(), "one probe");
            now = until;
            lengths.push(ways.failed(now, 0).unwrap().as_secs());
        }
        assert_eq!(lengths, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        let until = ways.choose(now, 0).unwrap_err();
        assert_eq!(ways.choose(until, 0), Ok(0));
        ways.worked(0, 7);
        assert!(ways.has_worked());
        assert_eq!(ways.failed(until, 0), Some(ASIDE_MIN), "it starts over");
    }

    #[test]
    fn a_request_for_one_way_alone_waits_for_it_until_it_is_hopeless() {
        let mut ways = Ways::new(2);
        assert_eq!(ways.choose_only(at(0), 0), Ok(0));
        let mut now = at(0);
        for is_hopeless in [false, false, false, false, true] {
            ways.failed(now, 0);
            assert_eq!(ways.is_hopeless(0), is_hopeless);
            assert_eq!(
                ways.choose(now, 0),
                Ok(1),
                "another request takes the other"
            );
            now = ways.choose_only(now, 0).unwrap_err();
            assert_eq!(ways.choose_only(now, 0), Ok(0));
        }
        ways.failed(now, 0);
        assert!(ways.is_hopeless(0));
        ways.failed(now, 1);
        assert!(!ways.is_hopeless(0), "no way works, so all requests wait");
        ways.worked(1, 7);
        ways.worked(0, 7);
        assert!(!ways.is_hopeless(0));
    }

    #[test]
    fn a_way_that_refuses_one_host_serves_the_others() {
        let mut ways = Ways::new(1);
        assert!(!ways.refused(0, 1), "no other host got through");
        ways.worked(0, 2);
        for _ in 0..9 {
            assert!(ways.refused(0, 1));
        }
        assert!(!ways.refused(0, 2), "it served this host before");
        ways.failed(at(0), 0);
        assert!(!ways.refused(0, 1), "it may serve no host now");
    }

    #[test]
    fn a_way_that_refuses_many_hosts_in_a_row_fails() {
        let mut ways = Ways::new(1);
        ways.worked(0, 0);
        assert_eq!([1, 2, 3].map(|host| ways.refused(0, host)), [true; 3]);
        ways.worked(0, 9);
        let hosts = [1, 2, 3, 4];
        let are_alone = hosts.map(|host| ways.refused(0, host));
        assert_eq!(are_alone, [true, true, true, false]);
    }

    #[test]
    fn requests_take_a_way_at_most_a_second_after_its_probe_succeeded() {
        let mut ways = Ways::new(1);
        ways.failed(at(0), 0);
        assert_eq!(ways.choose(at(5), 0), Ok(0));
        assert_eq!(ways.choose(at(5), 0), Err(at(6)));
        assert_eq!(ways.next_try(at(6)), at(7));
        ways.worked(0, 7);
        assert_eq!(ways.choose(at(6), 0), Ok(0));
    }

    #[test]
    fn a_lost_probe_is_sent_again() {
        let mut ways = Ways::new(1);
        ways.failed(at(0), 0);
        assert_eq!(ways.choose(at(5), 0), Ok(0));
        assert_eq!(ways.choose(at(64), 0), Err(at(65)));
        assert_eq!(ways.choose(at(65), 0), Ok(0));
    }

    proptest! {
        /// While one way works, each request gets one that works, apart from single probes.
        #[test]
        fn a_dead_way_gets_few_requests_and_a_live_one_the_rest(
            mut dead in prop::collection::vec(any::<bool>(), 1..6),
            preferred in prop::collection::vec(0_usize..100, 1..200),
        ) {
            dead[0] = false;
            let mut ways = Ways::new(dead.len());
            let mut now = Timestamp::ZERO;
            let mut lost = vec![0_u32; dead.len()];
            for preferred in &preferred {
                now = now + Duration::from_millis(500);
                loop {
                    let way = ways.choose(now, *preferred).unwrap();
                    if !dead[way] {
                        ways.worked(way, 7);
                        break;
                    }
                    ways.failed(now, way);
                    lost[way] += 1;
                }
            }
            // Failures at 0, 5, 15, 35 and 75 s: at most five in the 100 s.
            prop_assert!(lost.iter().all(|lost| *lost <= 5), "{lost:?}");
        }
    }
}
