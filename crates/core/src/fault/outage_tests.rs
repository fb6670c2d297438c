use super::*;

const GIVE_UP_AFTER: Duration = Duration::from_mins(15);

fn at(secs: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(secs)
}

fn failure(url: &str) -> Failed {
    Failed {
        resource: Resource::of(url),
        is_refusal: false,
        is_plain: false,
        reply: Reply::Answered,
        asked_wait: None,
        company: Company::Untried,
    }
}

fn page_at(not_before: Timestamp, host_serves: bool) -> Verdict {
    Verdict::Page {
        not_before,
        host_serves,
    }
}

fn pages<const N: usize>() -> [Failures; N] {
    [Failures::default(); N]
}

#[test]
fn a_failure_counts_once_another_url_was_served_and_then_once() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    for second in 0..3 {
        let verdict = outage.failed(at(second), &mut page, &failure("a"), GIVE_UP_AFTER);
        assert_eq!(verdict, Verdict::Host);
    }
    outage.settle(&mut page);
    assert_eq!(page.own, 0);
    outage.served();
    outage.served();
    outage.settle(&mut page);
    outage.settle(&mut page);
    assert_eq!(page.own, 1);
}

#[test]
fn an_outage_costs_no_attempts_however_long_it_is() {
    let mut outage = Outage::default();
    let mut pages: [_; 3] = pages();
    outage.served();
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
            let verdict = outage.failed(at(round), page, &failed, GIVE_UP_AFTER);
            assert_eq!(verdict, Verdict::Host);
        }
    }
    outage.served();
    for page in &mut pages {
        outage.settle(page);
        assert!(page.own <= 1);
    }
}

#[test]
fn the_only_url_of_a_host_is_charged_at_once() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    let failed = Failed {
        company: Company::Alone,
        ..failure("a")
    };
    for second in 0..5 {
        let verdict = outage.failed(at(second), &mut page, &failed, GIVE_UP_AFTER);
        assert_eq!(verdict, page_at(at(second), false));
    }
    assert_eq!(page.own, 5);
}

/// The host's last page fails during an outage, after the host served others.
#[test]
fn a_lone_url_of_a_host_that_served_others_is_tried_for_a_minute() {
    for company in [Company::Alone, Company::Unknown] {
        let mut outage = Outage::default();
        let [mut page] = pages();
        outage.served();
        let failed = Failed {
            company,
            ..failure("a")
        };
        for second in 9..14 {
            let verdict = outage.failed(at(second), &mut page, &failed, GIVE_UP_AFTER);
            assert_eq!(verdict, page_at(at(9) + LONE_PAGE_MIN, true));
        }
        assert_eq!(page.own, 5);
    }
}

#[test]
fn a_lone_url_with_plain_errors_is_charged_at_once() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    outage.served();
    let failed = Failed {
        company: Company::Unknown,
        is_plain: true,
        ..failure("a")
    };
    let verdict = outage.failed(at(9), &mut page, &failed, GIVE_UP_AFTER);
    assert_eq!(verdict, page_at(at(9) + LAST_PAGES_MIN, true));
    let verdict = outage.failed(at(10), &mut page, &failed, GIVE_UP_AFTER);
    assert_eq!(verdict, page_at(at(10), true));
}

#[test]
fn no_url_is_charged_for_a_refused_connection_of_a_host_that_served() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    outage.served();
    let failed = Failed {
        company: Company::Unknown,
        reply: Reply::Unreachable,
        ..failure("a")
    };
    for second in 1..=900 {
        let verdict = outage.failed(at(second), &mut page, &failed, GIVE_UP_AFTER);
        assert_eq!(verdict, Verdict::Host);
    }
    let verdict = outage.failed(at(901), &mut page, &failed, GIVE_UP_AFTER);
    assert!(matches!(verdict, Verdict::GivenUp(_)));
}

#[test]
fn pages_that_failed_while_others_were_served_are_no_evidence_against_their_host() {
    let mut outage = Outage::default();
    let mut pages: [_; 4] = pages();
    let urls = ["a", "b", "c", "d"];
    for (page, url) in pages.iter_mut().zip(urls) {
        outage.failed(at(1), page, &failure(url), GIVE_UP_AFTER);
        outage.served();
    }
    // Only these pages are left.
    for round in 0..4 {
        for (page, url) in pages.iter_mut().zip(urls) {
            let failed = Failed {
                company: Company::Tried,
                ..failure(url)
            };
            let verdict = outage.failed(at(10 + round), page, &failed, GIVE_UP_AFTER);
            // A page was served between the first two failures of each.
            let not_before = if round == 0 { 10 } else { 40 };
            assert_eq!(verdict, page_at(at(not_before), true));
        }
    }
    assert!(pages.iter().all(|page| page.own == 5));
}

#[test]
fn a_host_is_given_up_when_it_served_nothing_for_long_enough() {
    let mut outage = Outage::default();
    let mut pages: [_; 2] = pages();
    let mut fail = |outage: &mut Outage, second: u64, which: usize| {
        let failed = failure(["a", "b"][which]);
        outage.failed(at(second), &mut pages[which], &failed, GIVE_UP_AFTER)
    };
    assert_eq!(fail(&mut outage, 0, 0), Verdict::Host);
    assert_eq!(outage.down_since(), None, "one URL is not the host");
    assert_eq!(fail(&mut outage, 1, 1), Verdict::Host);
    assert_eq!(outage.down_since(), Some(at(0)));
    assert_eq!(fail(&mut outage, 899, 0), Verdict::Host);
    assert_eq!(outage.deadline(at(899), GIVE_UP_AFTER), Some(at(900)));
    // A host without requests for that long may serve again.
    assert_eq!(outage.deadline(at(1100), GIVE_UP_AFTER), None);
    let Verdict::GivenUp(why) = fail(&mut outage, 900, 1) else {
        panic!("not given up")
    };
    assert_eq!(
        why,
        GivenUp::ServedNothing {
            length: GIVE_UP_AFTER,
            is_all: true
        }
    );
    assert_eq!(why.to_string(), "the host served nothing for 900 s");
    assert_eq!(outage.given_up(), Some(why));
    outage.start_over();
    assert_eq!(fail(&mut outage, 901, 0), Verdict::Host);
    outage.served();
    assert!(!outage.in_trouble());
}

/// A wait for an hour's quota is not an outage.
#[test]
fn a_wait_longer_than_the_patience_does_not_count_but_not_for_ever() {
    let mut outage = Outage::default();
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
            match outage.failed(at(rounds * 3600), page, &failed, GIVE_UP_AFTER) {
                Verdict::Refused { .. } => {}
                Verdict::GivenUp(_) => return assert_eq!(rounds, 4),
                verdict => panic!("{verdict:?}"),
            }
        }
        rounds += 1;
        assert!(rounds < 10);
    }
}

#[test]
fn plain_errors_of_all_that_is_left_end_after_a_minute() {
    let mut outage = Outage::default();
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
        if outage.failed(at(second), page, &failed, GIVE_UP_AFTER) != Verdict::Host {
            break;
        }
        second += 1;
    }
    assert_eq!(second, 60);
}

fn silence(url: &str) -> Failed {
    Failed {
        reply: Reply::Silent,
        ..failure(url)
    }
}

#[test]
fn a_host_that_never_answered_is_given_up_after_six_tries() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    for second in 0..5 {
        let verdict = outage.failed(at(second), &mut page, &silence("a"), GIVE_UP_AFTER);
        assert!(!matches!(verdict, Verdict::GivenUp(_)), "{second}");
    }
    let verdict = outage.failed(at(5), &mut page, &silence("b"), GIVE_UP_AFTER);
    let Verdict::GivenUp(why) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(
        why,
        GivenUp::NeverAnswered {
            tries: 6,
            is_all: false
        }
    );
}

#[test]
fn a_host_that_never_answered_is_given_up_after_half_a_minute() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    for second in [0, 15, 29] {
        let verdict = outage.failed(at(second), &mut page, &silence("a"), GIVE_UP_AFTER);
        assert!(!matches!(verdict, Verdict::GivenUp(_)), "{second}");
    }
    assert_eq!(outage.deadline(at(29), GIVE_UP_AFTER), Some(at(30)));
    assert!(outage.give_up(at(30), GIVE_UP_AFTER).is_some());
}

#[test]
fn six_tries_within_a_moment_do_not_give_a_restarting_host_up() {
    let mut outage = Outage::default();
    let [mut page] = pages();
    for _ in 0..20 {
        let verdict = outage.failed(at(0), &mut page, &silence("a"), GIVE_UP_AFTER);
        assert!(!matches!(verdict, Verdict::GivenUp(_)));
    }
    assert_eq!(outage.deadline(at(0), GIVE_UP_AFTER), Some(at(5)));
}

#[test]
fn a_host_that_answered_once_has_all_the_patience() {
    for answers_with_an_error in [false, true] {
        let mut outage = Outage::default();
        let [mut page] = pages();
        if answers_with_an_error {
            outage.failed(at(0), &mut page, &failure("a"), GIVE_UP_AFTER);
        } else {
            outage.served();
        }
        for second in 1..899 {
            let verdict = outage.failed(at(second), &mut page, &silence("a"), GIVE_UP_AFTER);
            assert!(!matches!(verdict, Verdict::GivenUp(_)), "{second}");
        }
    }
}
