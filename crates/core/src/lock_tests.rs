//! Tests of promise P12: of a lock, never more holders than `max`, and fencing numbers that grow.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::host::Host;

const TTL: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
}

fn claim(session: u64, max: u16) -> LockOp {
    LockOp::Claim {
        session: SessionId(session),
        id: session,
        max,
        lasts: TTL,
    }
}

fn release(session: u64) -> LockOp {
    let session = SessionId(session);
    LockOp::Release { session }
}

fn holders(locks: &Locks) -> Vec<u64> {
    locks.holders().map(|claim| claim.session.0).collect()
}

#[test]
fn claims_are_served_in_order_and_an_exclusive_claim_is_not_overtaken() {
    let mut locks = Locks::default();
    for op in [claim(1, 2), claim(2, 2), claim(3, 1), claim(4, 2)] {
        locks.apply(at(0), &op);
    }
    assert_eq!(holders(&locks), [1, 2]);
    assert_eq!(locks.position(SessionId(4)), 1);
    locks.apply(at(1), &release(1));
    assert_eq!(
        holders(&locks),
        [2],
        "3 wants the key alone, and 4 came later"
    );
    locks.apply(at(1), &release(2));
    assert_eq!(holders(&locks), [3]);
    locks.apply(at(1), &release(3));
    assert_eq!(holders(&locks), [4]);
}

#[test]
fn a_claim_ends_with_its_time_and_a_renewal_moves_that() {
    let mut locks = Locks::default();
    locks.apply(at(0), &claim(1, 1));
    locks.apply(at(0), &claim(2, 1));
    let renew = |session| LockOp::Renew {
        session: SessionId(session),
        lasts: TTL,
    };
    locks.apply(at(9), &renew(1));
    locks.apply(at(9), &renew(2));
    locks.apply(at(18), &renew(2));
    assert_eq!((holders(&locks), locks.first_end()), (vec![1], at(19)));
    locks.apply(at(19), &LockOp::Tend);
    assert_eq!(holders(&locks), [2]);
    locks.apply(at(19), &renew(1));
    assert_eq!(locks.of(SessionId(1)), None, "a lost claim does not return");
}

#[test]
fn a_repeated_call_keeps_its_claim_and_another_call_changes_nothing() {
    let mut locks = Locks::default();
    locks.apply(at(0), &claim(1, 1));
    let first = *locks.of(SessionId(1)).unwrap();
    locks.apply(at(1), &claim(1, 1));
    let again = *locks.of(SessionId(1)).unwrap();
    assert_eq!((again.fencing(), again.ends), (first.fencing(), at(11)));
    let twice = LockOp::Claim {
        session: SessionId(1),
        id: 99,
        max: 5,
        lasts: TTL,
    };
    locks.apply(at(2), &twice);
    assert_eq!(*locks.of(SessionId(1)).unwrap(), again);
}

#[test]
fn after_a_restart_claims_of_known_sessions_last_on() {
    let mut locks = Locks::default();
    for session in 1..=3 {
        locks.apply(at(0), &claim(session, 2));
    }
    locks.resume(at(3_600), |session| (session.0 != 2).then_some(TTL));
    assert_eq!(holders(&locks), [1, 3]);
    assert_eq!(locks.first_end(), at(3_610));
}

#[test]
fn a_key_without_locks_costs_nothing_and_locks_survive_in_its_state() {
    let config = Config::default();
    let mut host = Host::new(&config, at(0));
    let before = host.snapshot();
    host.lock(at(0), &LockOp::Tend);
    host.lock(at(0), &release(1));
    assert_eq!(host.snapshot(), before);
    assert!(host.evictable(at(0), true, &config));
    host.lock(at(0), &claim(1, 1));
    host.lock(at(0), &claim(2, 1));
    let bytes = host.snapshot();
    let read = Host::restore(&bytes, at(5), &config).unwrap();
    assert_eq!(read.locks(), host.locks());
    assert!(!host.evictable(at(5), true, &config));
    for length in 0..bytes.len() {
        let _ = Host::restore(&bytes[..length], at(5), &config);
    }
    // Two sides of a split each have a holder. The merge keeps both.
    let mut other = Host::new(&config, at(0));
    other.lock(at(0), &claim(3, 1));
    host.join(&other, at(5), &config);
    assert_eq!(host.locks().map(holders), Some(vec![1, 3]));
    host.forget(at(5), &config);
    assert_eq!(
        host.locks().map(holders),
        Some(vec![1, 3]),
        "an operator's forget keeps locks"
    );
}

#[test]
fn a_line_has_an_end() {
    let mut locks = Locks::default();
    for session in 0..=CLAIMS_MAX as u64 {
        locks.apply(at(0), &claim(session + 1, 1));
    }
    assert_eq!(locks.claims().len(), CLAIMS_MAX);
}

/// A step of a worker, or of the world around the key.
#[derive(Clone, Debug)]
enum Step {
    Op(LockOp),
    /// The clock goes on, or is set back.
    Clock(i64),
    /// The state is written and read again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = || (1_u64..6).prop_map(SessionId);
    let lasts = || (1_u64..20).prop_map(Duration::from_secs);
    let claim = (session(), 0_u64..3, 1_u16..4, lasts()).prop_map(|(session, id, max, lasts)| {
        Step::Op(LockOp::Claim {
            session,
            id,
            max,
            lasts,
        })
    });
    let renew = (session(), lasts())
        .prop_map(|(session, lasts)| Step::Op(LockOp::Renew { session, lasts }));
    let release = session().prop_map(|session| Step::Op(LockOp::Release { session }));
    let clock = (-20_000_000_i64..20_000_000).prop_map(Step::Clock);
    let step = prop_oneof![
        4 => claim,
        2 => renew,
        2 => release,
        1 => Just(Step::Op(LockOp::Tend)),
        2 => clock,
        1 => Just(Step::Restart),
    ];
    vec(step, 1..60)
}

/// Runs `steps` and checks after each that no key has more holders than `max`, and that each grant
/// has a larger number than all before it.
fn run(locks: &mut Locks, steps: &[Step], mut now: i64) -> Result<(), TestCaseError> {
    let before = locks.holders().filter_map(LockClaim::fencing).max();
    let mut largest = before.unwrap_or(0).max(locks.last());
    let mut known: Vec<u64> = locks.holders().filter_map(LockClaim::fencing).collect();
    for step in steps {
        match step {
            Step::Op(op) => locks.apply(Timestamp::from_micros(now as u64), op),
            Step::Clock(micros) => now += micros,
            Step::Restart => {
                let bytes = postcard::to_allocvec(&*locks).unwrap();
                let read: Locks = postcard::from_bytes(&bytes).unwrap();
                prop_assert_eq!(&read, &*locks);
                *locks = read;
            }
        }
        let most = locks.holders().map(|claim| claim.max).min();
        let count = locks.holders().count();
        prop_assert!(
            count <= usize::from(most.unwrap_or(u16::MAX)),
            "{:?}",
            locks
        );
        for number in locks.holders().filter_map(LockClaim::fencing) {
            if !known.contains(&number) {
                prop_assert!(number > largest, "{number} after {largest}");
                known.push(number);
            }
        }
        largest = known.iter().copied().max().unwrap_or(0).max(largest);
        prop_assert!(locks.is_plausible());
        let first = locks
            .claims()
            .iter()
            .find(|claim| claim.fencing().is_none());
        let could =
            first.is_some_and(|first| count < usize::from(most.unwrap_or(u16::MAX).min(first.max)));
        prop_assert!(!could, "a claim waits for nothing: {:?}", locks);
    }
    Ok(())
}

const START: i64 = 1_700_000_000_000_000;

proptest! {
    #[test]
    fn never_more_holders_than_max_and_numbers_grow(steps in steps()) {
        run(&mut Locks::default(), &steps, START)?;
    }

    #[test]
    fn a_merge_keeps_every_holder_and_the_larger_number(
        common in steps(), left in steps(), right in steps(), third in steps(),
    ) {
        let mut base = Locks::default();
        run(&mut base, &common, START)?;
        let (mut a, mut b, mut c) = (base.clone(), base.clone(), base);
        run(&mut a, &left, START + 60_000_000)?;
        run(&mut b, &right, START + 60_000_000)?;
        run(&mut c, &third, START + 60_000_000)?;
        let join = |one: &Locks, two: &Locks| {
            let mut one = one.clone();
            one.join(two);
            one
        };
        let joined = join(&a, &b);
        prop_assert_eq!(&joined, &join(&b, &a));
        prop_assert_eq!(&joined, &join(&joined, &b));
        prop_assert_eq!(join(&joined, &c), join(&a, &join(&b, &c)));
        prop_assert_eq!(joined.last(), a.last().max(b.last()));
        prop_assert!(joined.is_plausible());
        for side in [&a, &b] {
            for holder in side.holders() {
                let kept = joined.of(holder.session).unwrap();
                let is_superseded = kept.arrival > holder.arrival;
                prop_assert!(is_superseded || kept.fencing() >= holder.fencing());
            }
        }
        // A grant after the merge has a number above those of both sides.
        let mut next = joined;
        let numbers: Vec<_> = next.holders().filter_map(LockClaim::fencing).collect();
        next.apply(Timestamp::from_micros(0), &claim(77, 100));
        for number in next.holders().filter_map(LockClaim::fencing) {
            prop_assert!(numbers.contains(&number) || number > a.last().max(b.last()));
        }
    }
}
