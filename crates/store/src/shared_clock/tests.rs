//! Shared time as several nodes derive it from one engine's clock.

use std::time::Duration;

use politely_core::Timestamp;

use super::SharedClock;
use crate::engine::{Heartbeat, Write};
use crate::record::NodeId;

const SECOND: u64 = 1_000_000;

/// An engine whose clock, run and epoch's cell are set by hand.
struct Engine {
    set_by: i64,
    run: u64,
    epoch: Option<Vec<u8>>,
}

impl Engine {
    const fn new() -> Self {
        Self {
            set_by: 1 << 50,
            run: 1,
            epoch: None,
        }
    }

    fn heartbeat(&self, now: u64) -> Heartbeat {
        Heartbeat {
            time: Timestamp::from_micros(now.saturating_add_signed(self.set_by)),
            run: self.run,
            epoch: self.epoch.clone(),
        }
    }

    fn write(&mut self, write: Option<Write>) {
        if let Some(write) = write {
            self.epoch = Some(write.value);
        }
    }

    /// Sends heartbeats until `who` knows the shared time.
    fn look(&mut self, who: &mut SharedClock, now: u64) {
        for at in (now..).step_by(200).take(5) {
            let (sent, came) = (Timestamp::from_micros(at), Timestamp::from_micros(at + 100));
            let seen = who.observe(sent, came, &self.heartbeat(at + 50));
            self.write(seen.write);
            if !seen.again {
                return;
            }
        }
        panic!("still unknown");
    }
}

fn shared(who: &SharedClock, now: u64) -> u64 {
    who.now(Timestamp::from_micros(now)).as_micros()
}

fn near(one: u64, other: u64) {
    assert!(one.abs_diff(other) < 10_000, "{one} and {other}");
}

#[test]
fn it_goes_on_when_the_clock_is_set() {
    let (mut engine, mut a) = (Engine::new(), SharedClock::new(NodeId(1)));
    engine.look(&mut a, SECOND);
    let began = shared(&a, SECOND);
    engine.set_by -= 60 * SECOND.cast_signed();
    engine.look(&mut a, SECOND + 250_000);
    near(shared(&a, 2 * SECOND), began + SECOND);
}

#[test]
fn of_two_steps_of_which_another_saw_one_both_are_taken_up() {
    let mut engine = Engine::new();
    let [mut a, mut b] = [1, 2].map(|who| SharedClock::new(NodeId(who)));
    engine.look(&mut a, SECOND);
    engine.look(&mut b, SECOND);
    let began = shared(&a, SECOND);
    engine.set_by -= 60 * SECOND.cast_signed();
    engine.look(&mut b, SECOND + 250_000);
    engine.set_by -= SECOND.cast_signed() / 2;
    engine.look(&mut a, SECOND + 500_000);
    near(shared(&a, 2 * SECOND), began + SECOND);
    engine.look(&mut b, SECOND + 600_000);
    near(shared(&b, 2 * SECOND), began + SECOND);
}

#[test]
fn a_stall_is_no_time_and_is_told_to_whoever_missed_it() {
    let mut engine = Engine::new();
    let [mut a, mut b] = [1, 2].map(|who| SharedClock::new(NodeId(who)));
    engine.look(&mut a, SECOND);
    engine.look(&mut b, SECOND);
    let (began, number, lost) = (shared(&a, SECOND), a.number(), a.loss());
    engine.look(&mut a, 11 * SECOND);
    near(shared(&a, 11 * SECOND), began);
    assert!(a.number() > number, "b goes by another time until it looks");
    assert_eq!(a.loss(), lost, "but nothing was lost");
    engine.look(&mut b, 12 * SECOND);
    near(shared(&b, 12 * SECOND), began + SECOND);
    assert_eq!(b.number(), a.number());
}

/// Regression: all beyond the longest stall counted, and leases ran out that had been held for
/// three seconds.
#[test]
fn a_clock_that_is_set_far_during_a_stall_makes_it_no_longer() {
    let (mut engine, mut a) = (Engine::new(), SharedClock::new(NodeId(1)));
    engine.look(&mut a, SECOND);
    let began = shared(&a, SECOND);
    engine.set_by += 65 * SECOND.cast_signed();
    engine.look(&mut a, 4 * SECOND);
    near(shared(&a, 4 * SECOND), began);
    engine.look(&mut a, 74 * SECOND);
    near(shared(&a, 74 * SECOND), began + 10 * SECOND);
}

/// A replica that was cut off returns with an old epoch. The node has seen the newer one a moment
/// before.
#[test]
fn a_replica_that_was_behind_does_not_set_time_back() {
    let (mut engine, mut a) = (Engine::new(), SharedClock::new(NodeId(1)));
    engine.look(&mut a, SECOND);
    let began = shared(&a, SECOND);
    let replica = engine.epoch.clone();
    for tick in 0..20 {
        engine.look(&mut a, SECOND + tick * 250_000);
    }
    let last = SECOND + 19 * 250_000;
    engine.epoch = replica;
    engine.run = 2;
    engine.set_by -= 2 * SECOND.cast_signed();
    let away = 1_300_000;
    engine.look(&mut a, last + away);
    let now = shared(&a, last + away);
    let at_last = began + last - SECOND;
    assert!(
        now >= at_last - 10_000 && now <= at_last + away,
        "{now} is not between {at_last} and {away} after"
    );
}

#[test]
fn nobody_goes_on_from_a_look_before_what_was_heard() {
    let (mut engine, mut a) = (Engine::new(), SharedClock::new(NodeId(1)));
    engine.look(&mut a, SECOND);
    assert!(a.looked_since(Timestamp::from_micros(SECOND / 2)));
    let heard = Timestamp::from_micros(SECOND) + Duration::from_millis(50);
    assert!(!a.looked_since(heard));
}
