//! Tests of promise P1 for workers that go on with their shares.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::host::{Decision, Host};

const LASTS: Duration = Duration::from_mins(1);

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000) + Duration::from_secs_f64(seconds)
}

/// Lets all of `names` call until nothing changes, and returns what they were told.
fn settled(members: &mut Members, names: &[&str], now: Timestamp) -> Vec<Option<Place>> {
    let mut told = vec![None; names.len()];
    for _ in 0..3 {
        for (name, told) in names.iter().zip(&mut told) {
            members.hear(name, *told, now);
            *told = members.tell(name, now);
        }
    }
    told
}

#[expect(clippy::unnecessary_wraps, reason = "what `tell` returns")]
fn place(index: u32, of: u32) -> Option<Place> {
    Some(Place { index, of })
}

#[test]
fn the_turns_of_all_places_are_those_of_one_key() {
    for rate in [0.3, 1.0, 7.0, 1_000.0] {
        let mut turns = Vec::new();
        for index in 0..3 {
            let place = Place { index, of: 3 };
            let mut turn = place.next_turn(rate, at(0.0));
            for _ in 0..50 {
                turns.push(turn);
                let next = place.next_turn(rate, turn + Duration::from_micros(1));
                assert!(next > turn, "{turn} twice at {rate}/s");
                let after = Duration::from_micros(10);
                let count = place.turns_between(rate, turn + after, next + after);
                assert!((count - 1.0).abs() < f64::EPSILON, "{count} at {rate}/s");
                turn = next;
            }
        }
        turns.sort_unstable();
        let interval = 1.0 / rate;
        for pair in turns.windows(2) {
            let gap = pair[1].seconds_since(pair[0]);
            assert!((gap - interval).abs() < 3e-6, "{gap} at {rate}/s");
        }
    }
}

#[test]
fn the_slots_of_all_places_are_the_cap() {
    for cap in 0..10 {
        let slots = (0..4).map(|index| Place { index, of: 4 }.slots(cap));
        assert_eq!(slots.sum::<u32>(), cap);
    }
}

#[test]
fn a_second_worker_has_a_share_once_the_first_has_half() {
    let mut members = Members::new(at(0.0), LASTS);
    members.hear("a", None, at(1.0));
    assert_eq!(members.tell("a", at(1.0)), place(0, 1));
    members.hear("b", None, at(2.0));
    assert_eq!(members.tell("b", at(2.0)), None);
    members.hear("a", place(0, 1), at(3.0));
    assert_eq!(members.tell("a", at(3.0)), place(0, 2));
    // The answer may be lost.
    members.hear("b", None, at(3.0));
    assert_eq!(members.tell("b", at(3.0)), None);
    members.hear("a", place(0, 2), at(4.0));
    members.hear("b", None, at(4.0));
    assert_eq!(members.tell("b", at(4.0)), place(1, 2));
}

#[test]
fn the_place_of_a_silent_worker_is_kept_until_its_share_has_ended() {
    let mut members = Members::new(at(0.0), LASTS);
    settled(&mut members, &["a", "b"], at(1.0));
    members.hear("b", place(1, 2), at(4.0));
    assert_eq!(
        members.silent(at(4.0)).collect::<Vec<_>>(),
        [Place { index: 0, of: 2 }]
    );
    assert_eq!(members.tell("b", at(4.0)), place(1, 2));
    assert_eq!(
        members
            .silent(at(61.0))
            .filter(|place| place.index == 0)
            .count(),
        0
    );
}

#[test]
fn a_restarted_coordinator_keeps_the_places_of_workers_that_did_not_call_yet() {
    let mut members = Members::new(at(0.0), LASTS);
    members.hear("c", place(2, 3), at(0.5));
    let silent: Vec<u32> = members.silent(at(0.5)).map(|place| place.index).collect();
    assert_eq!(silent, [0, 1]);
    members.hear("a", place(0, 3), at(1.0));
    let silent: Vec<u32> = members.silent(at(1.0)).map(|place| place.index).collect();
    assert_eq!(silent, [1]);
    assert_eq!(members.tell("a", at(1.0)), place(0, 3));
    assert_eq!(
        members
            .silent(at(60.0))
            .filter(|place| place.index == 1)
            .count(),
        0
    );
}

#[test]
fn a_place_that_no_coordinator_told_is_ignored() {
    let mut members = Members::new(at(0.0), LASTS);
    for known in [place(7, 3), place(0, 0), place(0, u32::MAX)] {
        members.hear("a", known, at(1.0));
        assert_eq!(members.tell("a", at(1.0)), place(0, 1));
    }
}

/// The knowledge of a worker in the model.
#[derive(Clone, Copy, Default)]
struct Told {
    place: Option<Place>,
    until: f64,
}

proptest! {
    /// The shares are never more than the whole when workers join, leave and lose answers.
    #[test]
    fn the_shares_are_never_more_than_the_whole(
        calls in vec((0_usize..5, any::<bool>(), 0.0..20.0_f64), 1..200),
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut members = Members::new(at(0.0), LASTS);
        let mut told = [Told::default(); 5];
        let mut now = 0.0;
        for (worker, is_lost, pause) in calls {
            now += if pause > 19.0 { 70.0 } else { pause / 20.0 };
            let known = told[worker].place.filter(|_| now < told[worker].until);
            members.hear(names[worker], known, at(now));
            let place = members.tell(names[worker], at(now));
            if !is_lost {
                told[worker] = Told { place, until: now + LASTS.as_secs_f64() };
            }
            let live = told.iter().filter(|told| now < told.until);
            let whole: f64 = live.filter_map(|told| told.place).map(|place| 1.0 / f64::from(place.of)).sum();
            prop_assert!(whole <= 1.0 + 1e-9, "{whole}");
        }
    }

    /// P1 from the coordinator's loss to its return: workers that cannot reach it notice at
    /// different times, and the coordinator grants again before all of them know.
    #[test]
    fn no_window_sees_more_than_burst_plus_rate_over_loss_and_return(
        rate in 0.5..20.0_f64,
        burst in 1.0..5.0_f64,
        workers in 1_usize..6,
        notices in vec(0.0..12.0_f64, 6),
        returns in vec(0.0..2.0_f64, 6),
        is_cut_off in vec(any::<bool>(), 6),
        dies in any::<bool>(),
    ) {
        let config = Config::fixed(rate, burst);
        let mut host = Host::new(&config, at(0.0));
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut members = Members::new(at(0.0), LASTS);
        let mut told = settled(&mut members, &names[..workers], at(0.0));
        let (loss, back) = (10.0, 40.0);
        let is_away = |worker: usize, now: f64| {
            let until = back + returns[worker];
            (dies || is_cut_off[worker]) && now >= loss && now < until
        };
        let mut left: Vec<f64> = Vec::new();
        let mut charged = at(0.0);
        let mut next_turn = vec![None; workers];
        for step in 0..12_000 {
            let now = f64::from(step) * 0.005;
            let is_up = !dies || now < loss || now >= back;
            if dies && step == 8_000 {
                let state = host.snapshot();
                host = Host::restore(&state, at(now), &config).unwrap();
                host.resume_after(at(now), at(now), &config);
                members = Members::new(at(now), LASTS);
                charged = at(now);
            }
            for worker in 0..workers {
                if is_up && !is_away(worker, now) {
                    if step % 100 == 0 || next_turn[worker].is_some() {
                        members.hear(names[worker], told[worker], at(now));
                        told[worker] = members.tell(names[worker], at(now));
                    }
                    next_turn[worker] = None;
                    continue;
                }
                let begins = at(loss + notices[worker].min(if dies { 12.0 } else { 0.5 })) + BEGINS_AFTER;
                let Some(place) = told[worker] else { continue };
                let turn = *next_turn[worker].get_or_insert_with(|| place.next_turn(rate, begins));
                if at(now) >= turn {
                    left.push(now);
                    next_turn[worker] = Some(place.next_turn(rate, at(now) + Duration::from_micros(1)));
                }
            }
            // The coordinator charges also while nobody calls, but not before the first call.
            if is_up && !members.is_empty() && (step % 4 == 0 || charged <= at(now)) {
                charged = charge(&mut host, &members, rate, charged, at(now), &config);
            }
            // A worker calls before it is granted anything.
            let is_called = (0..workers).any(|worker| !is_away(worker, now));
            if is_up && is_called {
                while let Decision::Granted(grant) = host.request(at(now), AcquireRequest::default(), &config) {
                    host.cancel(at(now), grant.lease, None, &config);
                    left.push(now);
                }
            }
        }
        for (i, from) in left.iter().enumerate() {
            for (j, to) in left.iter().enumerate().skip(i) {
                // The turns of silent workers are charged every 20 ms, and time advances by 5 ms.
                let most = burst + rate * (to - from + 0.03) + 1.0;
                prop_assert!((j - i + 1) as f64 <= most, "{} from {from} to {to}", j - i + 1);
            }
        }
    }
}

/// Charges the turns of silent workers until a little later than `now`, as the coordinator does.
fn charge(
    host: &mut Host,
    members: &Members,
    rate: f64,
    charged: Timestamp,
    now: Timestamp,
    config: &Config,
) -> Timestamp {
    let ahead = now + Duration::from_millis(20);
    let turns = members
        .silent(now)
        .map(|place| place.turns_between(rate, charged, ahead));
    host.charge_share(now, &Charge::Turns(turns.sum()), config);
    ahead
}
