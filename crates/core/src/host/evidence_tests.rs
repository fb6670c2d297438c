//! Tests of `evidence.rs`.

use super::*;

fn fails(evidence: &mut Evidence, url: u32, kind: Kind, at: u64) -> Fault {
    evidence.failed(url, kind, LeaseId(at), LeaseId(at + 1), true)
}

fn seasoned() -> Evidence {
    Evidence {
        usual: UsualShare {
            tries: 40,
            failures: 0,
        },
        ..Evidence::default()
    }
}

#[test]
fn a_success_under_way_before_the_failure_makes_no_suspect() {
    let mut evidence = seasoned();
    fails(&mut evidence, 1, Kind::Refusal, 10);
    evidence.served(Some(2), LeaseId(9), false);
    assert!(!evidence.suspects(1));
    evidence.served(Some(2), LeaseId(11), false);
    assert!(evidence.suspects(1));
}

#[test]
fn few_urls_are_remembered_and_a_proven_one_makes_room() {
    let mut evidence = seasoned();
    fails(&mut evidence, 1, Kind::Refusal, 0);
    evidence.served(Some(99), LeaseId(1), false);
    fails(&mut evidence, 1, Kind::Refusal, 2);
    assert!(evidence.is_proven(1));
    for url in 2..30 {
        fails(&mut evidence, url, Kind::Error, u64::from(url) + 2);
    }
    assert_eq!(evidence.failed.len(), URLS_MAX);
    assert!(!evidence.suspects(1) && evidence.is_plausible());
}

#[test]
fn where_every_second_url_fails_two_in_a_row_say_nothing() {
    let mut evidence = Evidence {
        usual: UsualShare {
            tries: 100,
            failures: 50,
        },
        ..Evidence::default()
    };
    let blamed = (0..20).position(|url| fails(&mut evidence, url, Kind::Trouble, 0) == Fault::Host);
    assert_eq!(blamed, Some(15), "sixteen in a row are rarer than 1e-5");
}

#[test]
fn urls_that_recover_make_every_first_failure_count() {
    let mut evidence = seasoned();
    for url in 0..2 {
        assert_eq!(fails(&mut evidence, url, Kind::Trouble, 0), Fault::Url);
        evidence.served(Some(url), LeaseId(1), false);
    }
    assert_eq!(fails(&mut evidence, 5, Kind::Trouble, 2), Fault::Host);
}

#[test]
fn joins_commute_and_repeat() {
    let (mut a, mut b) = (seasoned(), Evidence::default());
    for url in 0..6 {
        fails(&mut a, url, Kind::Refusal, u64::from(url));
        fails(&mut b, url + 3, Kind::Trouble, u64::from(url) + 2);
    }
    a.served(Some(3), LeaseId(9), false);
    let join = |mut mine: Evidence, theirs: &Evidence| {
        mine.join(theirs);
        mine
    };
    let both = join(a.clone(), &b);
    assert_eq!(both, join(b.clone(), &a));
    assert_eq!(both, join(both.clone(), &a));
    assert_eq!(join(a.clone(), &a), a);
}

/// A limit of which one request in two is served, at a host that refused none before.
#[test]
fn while_new_urls_are_refused_a_second_refusal_proves_no_fault() {
    let mut evidence = seasoned();
    for url in [1, 2] {
        assert_eq!(fails(&mut evidence, url, Kind::Refusal, 10), Fault::Host);
    }
    evidence.served(Some(3), LeaseId(12), false);
    assert_eq!(fails(&mut evidence, 1, Kind::Refusal, 13), Fault::Host);
    assert!(!evidence.is_proven(1));
}
