//! Tests of `leases.rs`.

use super::*;

const LASTS: Duration = Duration::from_secs(10);

const fn at(secs: u64) -> Timestamp {
    Timestamp::from_micros(secs * 1_000_000)
}

#[test]
fn a_killed_worker_leaks_nothing() {
    let mut leases = Leases::default();
    leases.take(at(0), LASTS, false, false);
    leases.take(at(1), LASTS, true, false);
    assert_eq!(leases.next_expiry(), Some(at(10)));
    assert_eq!(
        leases.expire(at(10)),
        Expired {
            count: 1,
            probe: false,
            last: Some(at(10)),
        }
    );
    assert_eq!(
        leases.expire(at(11)),
        Expired {
            count: 1,
            probe: true,
            last: Some(at(11)),
        }
    );
    assert_eq!(leases.in_flight(), 0);
}

/// Regression: a key that had two requests in flight once kept their heap memory for good.
#[test]
fn a_rush_that_is_over_owns_no_memory() {
    let mut leases = Leases::default();
    let rush = |leases: &mut Leases| -> Vec<_> {
        (0..9)
            .map(|_| leases.take(at(0), LASTS, false, false).id)
            .collect()
    };
    for id in rush(&mut leases) {
        assert!(leases.live.spilled());
        leases.report(id);
    }
    assert!(!leases.live.spilled());
    rush(&mut leases);
    leases.expire(at(10));
    assert!(!leases.live.spilled());
}

#[test]
fn a_report_counts_once_and_never_after_its_lease() {
    let mut leases = Leases::default();
    let id = leases.take(at(0), LASTS, false, false).id;
    assert!(leases.report(id).is_some());
    assert!(leases.report(id).is_none());
    let late = leases.take(at(0), LASTS, false, false).id;
    leases.expire(at(60));
    assert!(leases.report(late).is_none());
    let tally = leases.tally();
    assert_eq!(
        (tally.granted, tally.reported, tally.expired, tally.live),
        (2, 1, 1, 0)
    );
}

#[test]
fn what_was_heard_is_in_flight_until_reported() {
    let mut leases = Leases::default();
    let id = leases.take(at(0), LASTS, true, false).id;
    assert!(leases.on_head(id).is_some_and(|lease| lease.is_probe()));
    assert!(leases.on_head(id).is_none(), "heard once");
    assert_eq!((leases.in_flight(), leases.unheard()), (1, 0));
    assert_eq!(leases.tally().live, 1);
    assert!(leases.report(id).is_some_and(|lease| !lease.is_probe()));
    let tally = leases.tally();
    assert_eq!((tally.granted, tally.reported, tally.live), (1, 1, 0));
}

/// Regression: an id that was lost with the state was given a second time, and one report ended
/// both leases.
#[test]
fn a_lost_state_gives_no_id_twice() {
    let mut leases = Leases::default();
    leases.take(at(0), LASTS, false, false);
    let kept = leases.clone();
    let lost = leases.take(at(0), LASTS, false, false).id;

    let mut leases = kept;
    leases.generation(1_800_000_000);
    let id = leases.take(at(1), LASTS, false, false).id;
    assert_eq!(id, LeaseId(1_800_000_000 << 32));
    assert!(leases.report(lost).is_none());
    leases.generation(7);
    assert_eq!(leases.next(), LeaseId(id.0 + 1), "never back");
    let tally = leases.tally();
    assert_eq!((tally.granted, tally.live), (2, 2));
    leases.generation(u32::MAX);
    leases.take(at(2), LASTS, false, false);
    assert!(leases.plausible());
}

#[test]
fn joined_leases_are_those_of_both() {
    let mut one = Leases::default();
    let [probe, renewed, ended] =
        [true, false, false].map(|probe| one.take(at(0), LASTS, probe, false).id);
    let mut other = one.clone();
    other.generation(7);
    let own = one.take(at(1), LASTS, false, false).id;
    let later = other.take(at(2), LASTS, false, false).id;
    one.on_head(probe);
    one.renew(renewed, at(60));
    other.on_head(renewed);
    other.report(ended);

    let mut joined = one.clone();
    joined.join(&other);
    other.join(&one);
    assert_eq!(joined, other, "in either order");
    assert!(joined.plausible());
    let ids: Vec<_> = joined.live.iter().map(|lease| lease.id).collect();
    assert_eq!(ids, [probe, renewed, ended, own, later]);
    assert!(joined.probing(), "who waits for its probe is told");
    assert_eq!((joined.unheard(), joined.next()), (5, other.next()));
    assert_eq!(joined.expire(at(59)).count, 4);
    assert!(joined.renew(renewed, at(60)));
    let tally = joined.tally();
    assert_eq!(
        (tally.granted, tally.reported, tally.live),
        (6, 1, 1),
        "what ended on one side only is there twice"
    );
}

#[test]
fn renewal_never_shortens() {
    let mut leases = Leases::default();
    let id = leases.take(at(0), LASTS, false, false).id;
    assert!(leases.renew(id, at(5)));
    assert_eq!(leases.next_expiry(), Some(at(10)));
    assert!(leases.renew(id, at(50)));
    assert_eq!(leases.expire(at(49)).count, 0);
}
