use super::super::pending::Page;
use super::*;

const PATIENCE: Patience = Patience {
    attempts_max: 5,
    give_up_after: Duration::from_mins(15),
};

fn at(secs: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(secs)
}

fn failure(url: &str) -> Failed<'_> {
    Failed {
        resource: Resource::of(url),
        is_refusal: false,
        is_plain: false,
        is_silence: false,
        asked_wait: None,
        company: Company::Untried,
        words: "503",
    }
}

fn pages<const N: usize>() -> [Pending; N] {
    std::array::from_fn(|_| Pending::page(0, Page::default()))
}

#[test]
fn a_failure_counts_once_another_url_was_served_and_then_once() {
    let mut health = Health::default();
    let [mut page] = pages();
    for second in 0..3 {
        let verdict = health.failed(at(second), &mut page, &failure("a"), &PATIENCE);
        assert_eq!(verdict, Verdict::Uncharged);
    }
    health.settle(&mut page);
    assert_eq!(page.own_failures, 0);
    health.served();
    health.served();
    health.settle(&mut page);
    health.settle(&mut page);
    assert_eq!(page.own_failures, 1);
}

#[test]
fn an_outage_costs_no_attempts_however_long_it_is() {
    let mut health = Health::default();
    let mut pages: [_; 3] = pages();
    health.served();
    for round in 0..200 {
        for (page, url) in pages.iter_mut().zip(["a", "b", "c"]) {
            let failed = Failed {
                company: if round == 0 {
                    Company::Untried
                } else {
                    Company::Tried
                },
                ..failure(url)
            };
            let verdict = health.failed(at(round), page, &failed, &PATIENCE);
            assert_eq!(verdict, Verdict::Uncharged);
        }
    }
    health.served();
    for page in &mut pages {
        health.settle(page);
        assert!(page.own_failures <= 1);
    }
}

#[test]
fn the_only_url_of_a_host_is_charged_at_once() {
    let mut health = Health::default();
    let [mut page] = pages();
    let failed = Failed {
        company: Company::Alone,
        ..failure("a")
    };
    for second in 0..5 {
        let verdict = health.failed(at(second), &mut page, &failed, &PATIENCE);
        assert_eq!(verdict, Verdict::Charged(at(second)));
    }
    assert_eq!(page.own_failures, 5);
}

/// The host's last page fails during an outage, after the host served others.
#[test]
fn the_last_url_of_a_host_that_served_others_is_given_half_a_minute() {
    let mut health = Health::default();
    let [mut page] = pages();
    health.served();
    let failed = Failed {
        company: Company::Alone,
        ..failure("a")
    };
    let verdict = health.failed(at(9), &mut page, &failed, &PATIENCE);
    assert_eq!(verdict, Verdict::Charged(at(9) + LAST_PAGES_MIN));
}

#[test]
fn pages_that_failed_while_others_were_served_are_no_evidence_against_their_host() {
    let mut health = Health::default();
    let mut pages: [_; 4] = pages();
    let urls = ["a", "b", "c", "d"];
    for (page, url) in pages.iter_mut().zip(urls) {
        health.failed(at(1), page, &failure(url), &PATIENCE);
        health.served();
    }
    // Only these pages are left.
    for round in 0..4 {
        for (page, url) in pages.iter_mut().zip(urls) {
            let failed = Failed {
                company: Company::Tried,
                ..failure(url)
            };
            let verdict = health.failed(at(10 + round), page, &failed, &PATIENCE);
            assert_eq!(verdict, Verdict::Charged(at(40)));
        }
    }
    assert!(pages.iter().all(|page| page.own_failures == 5));
}

#[test]
fn a_host_is_given_up_when_it_served_nothing_for_long_enough() {
    let mut health = Health::default();
    let mut pages: [_; 2] = pages();
    let mut fail = |health: &mut Health, second: u64, which: usize| {
        let failed = failure(["a", "b"][which]);
        health.failed(at(second), &mut pages[which], &failed, &PATIENCE)
    };
    assert_eq!(fail(&mut health, 0, 0), Verdict::Uncharged);
    assert_eq!(health.down_since(), None, "one URL is not the host");
    assert_eq!(fail(&mut health, 1, 1), Verdict::Uncharged);
    assert_eq!(health.down_since(), Some(at(0)));
    assert_eq!(fail(&mut health, 899, 0), Verdict::Uncharged);
    assert_eq!(health.deadline(at(899), &PATIENCE), Some(at(900)));
    // A host without requests for that long may serve again.
    assert_eq!(health.deadline(at(1100), &PATIENCE), None);
    let Verdict::GiveUp(why) = fail(&mut health, 900, 1) else {
        panic!("not given up")
    };
    assert_eq!(
        why,
        "the host served nothing for 900 s (--give-up-after); the last answer: 503"
    );
    assert_eq!(health.gave_up(), Some(&*why));
    health.start_over();
    assert_eq!(fail(&mut health, 901, 0), Verdict::Uncharged);
    health.served();
    assert!(!health.in_trouble());
}

/// A wait for an hour's quota is not an outage.
#[test]
fn a_wait_longer_than_the_patience_does_not_count_but_not_for_ever() {
    let mut health = Health::default();
    let mut pages: [_; 2] = pages();
    let hour = Duration::from_hours(1);
    let mut rounds = 0;
    loop {
        for (page, url) in pages.iter_mut().zip(["a", "b"]) {
            let failed = Failed {
                is_refusal: true,
                asked_wait: Some(hour),
                ..failure(url)
            };
            match health.failed(at(rounds * 3600), page, &failed, &PATIENCE) {
                Verdict::Uncharged => {}
                Verdict::GiveUp(_) => return assert_eq!(rounds, 4),
                Verdict::Charged(_) => panic!("a refusal is no failure of its page"),
            }
        }
        rounds += 1;
        assert!(rounds < 10);
    }
}

#[test]
fn plain_errors_of_all_that_is_left_end_after_a_minute() {
    let mut health = Health::default();
    let mut pages: [_; 2] = pages();
    let mut second = 0;
    loop {
        let page = &mut pages[second as usize % 2];
        let failed = Failed {
            is_plain: true,
            company: if second < 2 {
                Company::Untried
            } else {
                Company::Tried
            },
            ..failure(["a", "b"][second as usize % 2])
        };
        if health.failed(at(second), page, &failed, &PATIENCE) != Verdict::Uncharged {
            break;
        }
        second += 1;
    }
    assert_eq!(second, 60);
}

fn silence(url: &str) -> Failed<'_> {
    Failed {
        is_silence: true,
        words: "no connection: connection refused",
        ..failure(url)
    }
}

#[test]
fn a_host_that_never_answered_is_given_up_after_six_tries() {
    let mut health = Health::default();
    let [mut page] = pages();
    for second in 0..5 {
        let verdict = health.failed(at(second), &mut page, &silence("a"), &PATIENCE);
        assert!(!matches!(verdict, Verdict::GiveUp(_)), "{second}");
    }
    let verdict = health.failed(at(5), &mut page, &silence("b"), &PATIENCE);
    let Verdict::GiveUp(why) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(
        why,
        "the host never answered, in 6 tries; the last failure: no connection: connection refused"
    );
}

#[test]
fn a_host_that_never_answered_is_given_up_after_half_a_minute() {
    let mut health = Health::default();
    let [mut page] = pages();
    for second in [0, 15, 29] {
        let verdict = health.failed(at(second), &mut page, &silence("a"), &PATIENCE);
        assert!(!matches!(verdict, Verdict::GiveUp(_)), "{second}");
    }
    assert_eq!(health.deadline(at(29), &PATIENCE), Some(at(30)));
    assert!(health.give_up(at(30), &PATIENCE).is_some());
}

#[test]
fn six_tries_within_a_moment_do_not_give_a_restarting_host_up() {
    let mut health = Health::default();
    let [mut page] = pages();
    for _ in 0..20 {
        let verdict = health.failed(at(0), &mut page, &silence("a"), &PATIENCE);
        assert!(!matches!(verdict, Verdict::GiveUp(_)));
    }
    assert_eq!(health.deadline(at(0), &PATIENCE), Some(at(5)));
}

#[test]
fn a_host_that_answered_once_has_all_the_patience() {
    for answers_with_an_error in [false, true] {
        let mut health = Health::default();
        let [mut page] = pages();
        if answers_with_an_error {
            health.failed(at(0), &mut page, &failure("a"), &PATIENCE);
        } else {
            health.served();
        }
        for second in 1..899 {
            let verdict = health.failed(at(second), &mut page, &silence("a"), &PATIENCE);
            assert!(!matches!(verdict, Verdict::GiveUp(_)), "{second}");
        }
    }
}
