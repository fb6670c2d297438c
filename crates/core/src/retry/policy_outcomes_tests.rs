//! The outcomes and methods that are sent again.

use super::*;

#[test]
fn what_the_crawler_tries_again() {
    let policy = Policy::crawler();
    let again = |report: &Report| matches!(decide(&policy, &get(1), report), Next::Retry { .. });
    let statuses: Vec<u16> = (400..600).filter(|&code| again(&status(code))).collect();
    assert_eq!(
        statuses,
        [408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]
    );
    for failure in [
        Failure::Resolver,
        Failure::Connect,
        Failure::Timeout,
        Failure::Reset,
    ] {
        assert!(again(&failed(failure)), "{failure:?}");
    }
    for failure in [Failure::NoSuchHost, Failure::Tls, Failure::Malformed] {
        assert!(!again(&failed(failure)), "{failure:?}");
    }
    assert_eq!(decide(&policy, &get(1), &status(200)), Next::Done);
}

/// The failure counts, not the status.
#[test]
fn a_connection_that_breaks_after_a_fine_status_is_a_failure() {
    let broken = Report {
        status: Some(200),
        ..failed(Failure::Reset)
    };
    for policy in [Policy::crawler(), Policy::job_scraper()] {
        assert!(matches!(
            decide(&policy, &get(1), &broken),
            Next::Retry { .. }
        ));
    }
}

#[test]
fn the_servers_word_on_retries_is_obeyed() {
    let told = |may_retry, code| Report {
        may_retry: Some(may_retry),
        ..status(code)
    };
    let policy = Policy::crawler();
    for code in [429, 500, 503] {
        let next = decide(&policy, &get(1), &told(false, code));
        assert_eq!(next, Next::GiveUp(GiveUpReason::DoNotRetry), "{code}");
    }
    for code in [409, 503] {
        let next = decide(&policy, &get(1), &told(true, code));
        assert!(matches!(next, Next::Retry { .. }), "{code}: {next:?}");
        let last = decide(&policy, &get(policy.attempts_max), &told(true, code));
        assert!(matches!(last, Next::GiveUp(_)), "{code}: {last:?}");
    }
    assert!(policy.is_served(&status(409)) && !policy.is_served(&told(true, 409)));
}

/// A challenge page has the status 403, 429 or 503. The status must not make the policy retry it.
#[test]
fn a_block_is_not_retried() {
    for policy in [Policy::crawler(), Policy::job_scraper()] {
        for code in [403, 429, 503] {
            let blocked = Report {
                status: Some(code),
                ..report(Signal::Blocked)
            };
            assert_eq!(
                decide(&policy, &get(1), &blocked),
                Next::GiveUp(GiveUpReason::Blocked)
            );
        }
    }
}

#[test]
fn methods_by_rfc_9110() {
    let all = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
        Method::PUT,
        Method::DELETE,
        Method::POST,
        Method::PATCH,
    ];
    let counts = [Methods::Fetching, Methods::Safe, Methods::Idempotent]
        .map(|methods| all.iter().filter(|method| methods.contains(method)).count());
    assert_eq!(counts, [3, 4, 6]);
    assert!(
        !Methods::Idempotent.contains(&Method::from_bytes(b"get").unwrap()),
        "methods are case-sensitive"
    );
}
