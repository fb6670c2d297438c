use super::*;
use crate::fault::Failures;
use crate::retry::{Budget, BudgetRule};

#[path = "policy_outcomes_tests.rs"]
mod outcomes;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn report(signal: Signal) -> Report {
    Report {
        latency: ms(10),
        ..Report::of(signal)
    }
}

fn status(status: u16) -> Report {
    let signal = match status {
        429 => Signal::RateLimited,
        502..=504 => Signal::Overloaded,
        400.. => Signal::UrlError,
        _ => Signal::Ok,
    };
    Report {
        status: Some(status),
        ..report(signal)
    }
}

fn failed(failure: Failure) -> Report {
    let signal = match failure {
        Failure::Timeout | Failure::Reset => Signal::Overloaded,
        Failure::Malformed => Signal::UrlError,
        _ => Signal::Unreachable,
    };
    Report {
        failure: Some(failure),
        ..report(signal)
    }
}

fn asking(secs: u64, code: u16) -> Report {
    Report {
        retry_after: Some(Duration::from_secs(secs)),
        ..status(code)
    }
}

fn get(number: u32) -> Attempt {
    Attempt {
        number,
        failures: Failures::counted(number.saturating_sub(1)),
        ..Attempt::first(Method::GET)
    }
}

fn decide(policy: &Policy, attempt: &Attempt, report: &Report) -> Next {
    decide_with(policy, attempt, report, &mut [], &mut Rng::new(1))
}

/// Decides about the only page of a host.
fn decide_with(
    policy: &Policy,
    attempt: &Attempt,
    report: &Report,
    accounts: &mut [Account<'_>],
    rng: &mut Rng,
) -> Next {
    let (mut outage, mut attempt) = (Outage::default(), attempt.clone());
    let now = Timestamp::ZERO;
    let verdict = policy.judge(
        &mut outage,
        &mut attempt,
        report,
        &Directions::unknown(now),
        Company::Alone,
        now,
    );
    policy.decide(&attempt, report, verdict, accounts, rng, now)
}

/// Asserts the range of the policy's delays for the n-th retry (from 0) after `report`.
#[track_caller]
fn assert_delay(policy: &Policy, n: u32, report: &Report, least_ms: u64, below_ms: u64) {
    let mut rng = Rng::new(u64::from(n));
    let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
    for _ in 0..2000 {
        let Next::Retry {
            after,
            is_charged: true,
        } = decide_with(policy, &get(n + 1), report, &mut [], &mut rng)
        else {
            panic!("retry {n} after {report:?} is not made");
        };
        (shortest, longest) = (shortest.min(after), longest.max(after));
    }
    // Of 2,000 draws the extremes are within a percent of the bounds, so the bounds are exact and
    // not only wide.
    let slack = ms(below_ms - least_ms) / 100;
    assert!(
        ms(least_ms) <= shortest && shortest < ms(least_ms) + slack,
        "retry {n}: {shortest:?}, least {least_ms} ms"
    );
    assert!(
        longest < ms(below_ms) && longest + slack > ms(below_ms),
        "retry {n}: {longest:?}, below {below_ms} ms"
    );
}

#[test]
fn the_job_scrapers_delays() {
    let policy = Policy {
        attempts_max: 10,
        consecutive_429_max: None,
        ..Policy::job_scraper()
    };
    let limited = |status| Report {
        status: Some(status),
        ..report(Signal::RateLimited)
    };
    for n in 4..7 {
        let reports = [
            failed(Failure::Timeout),
            status(503),
            status(429),
            limited(403),
        ];
        for report in reports {
            let longest = Next::Retry {
                after: Duration::from_secs(4),
                is_charged: true,
            };
            assert_eq!(decide(&policy, &get(n + 1), &report), longest, "retry {n}");
        }
    }
    // The columns are: retry, error, 5xx (+80), 429 (+300), 401/403/406 (+600). Each has U[0, 120)
    // ms more.
    let table = [
        (0, 300, 380, 600, 900),
        (1, 600, 680, 900, 1200),
        (2, 1200, 1280, 1500, 1800),
        (3, 2400, 2480, 2700, 3000),
    ];
    for (n, error, server, refused, forbidden) in table {
        for failure in [
            Failure::Timeout,
            Failure::Reset,
            Failure::Resolver,
            Failure::Malformed,
        ] {
            assert_delay(&policy, n, &failed(failure), error, error + 120);
        }
        for code in [500, 501, 502, 503, 504, 505, 522, 599] {
            assert_delay(&policy, n, &status(code), server, server + 120);
        }
        assert_delay(&policy, n, &status(429), refused, refused + 120);
        for code in [401, 403, 406] {
            assert_delay(&policy, n, &limited(code), forbidden, forbidden + 120);
        }
    }
}

#[test]
fn the_job_scraper_gives_up_at_once() {
    let policy = Policy::job_scraper();
    for failure in [Failure::NoSuchHost, Failure::Tls, Failure::Connect] {
        assert_eq!(
            decide(&policy, &get(1), &failed(failure)),
            Next::GiveUp(GiveUpReason::Permanent(failure))
        );
    }
    for code in [400, 401, 403, 406, 408, 418] {
        assert_eq!(
            decide(&policy, &get(1), &status(code)),
            Next::GiveUp(GiveUpReason::Status(code))
        );
    }
    for method in [
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::TRACE,
        Method::PATCH,
        Method::CONNECT,
    ] {
        assert_eq!(
            decide(&policy, &Attempt::first(method), &status(503)),
            Next::GiveUp(GiveUpReason::Method)
        );
    }
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        assert!(matches!(
            decide(&policy, &Attempt::first(method), &status(503)),
            Next::Retry { .. }
        ));
    }
}

#[test]
fn the_job_scrapers_second_429_in_a_row_is_final() {
    let policy = Policy::job_scraper();
    let refused = status(429);
    assert!(matches!(
        decide(&policy, &get(1), &refused),
        Next::Retry { .. }
    ));
    let second = get(1).following(&refused, ms(600));
    assert_eq!(
        decide(&policy, &second, &refused),
        Next::GiveUp(GiveUpReason::Consecutive429(2))
    );
    // A 503 between them ends the sequence.
    let third = second.following(&status(503), ms(1000));
    assert!(matches!(
        decide(&policy, &third, &refused),
        Next::Retry { .. }
    ));
    assert_eq!(
        (third.number, third.refusals, third.consecutive_429),
        (3, 1, 0)
    );
}

/// Scrapy loses pages here: it gives up a page after three 429s, whichever request caused them.
#[test]
fn a_crawlers_refused_request_goes_back_to_its_queue_and_counts_apart() {
    let policy = Policy::crawler();
    let refused = status(429);
    let mut attempt = get(1);
    for _ in 0..100 {
        assert_eq!(
            decide(&policy, &attempt, &refused),
            Next::Retry {
                after: Duration::ZERO,
                is_charged: false
            }
        );
        attempt = attempt.following(&refused, Duration::ZERO);
    }
    assert_eq!(
        decide(&policy, &attempt, &refused),
        Next::GiveUp(GiveUpReason::Refused(101))
    );
    // After a hundred refusals the first failure is still the first. Its retry waits less than a
    // second.
    assert_delay(&policy, 0, &status(503), 0, 1000);
    let Next::Retry {
        after,
        is_charged: true,
    } = decide(&policy, &attempt, &status(503))
    else {
        panic!()
    };
    assert!(after < ms(1000));
}

#[test]
fn a_refusal_costs_no_budget_and_a_failure_one_retry() {
    let (policy, rule, now) = (Policy::crawler(), BudgetRule::PER_KEY, Timestamp::ZERO);
    let mut budget = Budget::full(&rule, now);
    let mut rng = Rng::new(0);
    let mut saved_after = |report: &Report| {
        let account = Account {
            budget: &mut budget,
            rule: &rule,
        };
        let _ = decide_with(&policy, &get(1), report, &mut [account], &mut rng);
        budget.available(&rule, now)
    };
    assert_eq!(saved_after(&status(429)), 10);
    assert_eq!(saved_after(&status(503)), 9);
    assert_eq!(
        [(); 5].map(|()| saved_after(&status(200))),
        [9, 9, 9, 9, 10]
    );
    assert_eq!(
        saved_after(&status(404)),
        10,
        "what is given up costs nothing"
    );
}

#[test]
fn a_dry_budget_is_waited_for_or_final() {
    let rule = BudgetRule::new(0.1, 0.01, 1.0).unwrap();
    let with = |budget_patience| {
        let policy = Policy {
            budget_patience,
            ..Policy::crawler()
        };
        let mut budget = Budget::full(&rule, Timestamp::ZERO);
        let mut rng = Rng::new(0);
        let mut next = || {
            let account = Account {
                budget: &mut budget,
                rule: &rule,
            };
            decide_with(&policy, &get(1), &status(503), &mut [account], &mut rng)
        };
        (next(), next()).1
    };
    assert_eq!(
        with(Duration::ZERO),
        Next::GiveUp(GiveUpReason::BudgetSpent)
    );
    assert_eq!(
        with(Duration::from_secs(100)),
        Next::Retry {
            after: Duration::from_secs(100),
            is_charged: true
        }
    );
}

#[test]
fn failures_end_at_the_cap() {
    let policy = Policy::crawler();
    assert!(matches!(
        decide(&policy, &get(4), &failed(Failure::Timeout)),
        Next::Retry {
            is_charged: true,
            ..
        }
    ));
    assert_eq!(
        decide(&policy, &get(5), &failed(Failure::Timeout)),
        Next::GiveUp(GiveUpReason::Attempts(5))
    );
    let never = Policy {
        attempts_max: 1,
        ..policy
    };
    assert_eq!(
        decide(&never, &get(1), &status(500)),
        Next::GiveUp(GiveUpReason::Attempts(1))
    );
    // Invalid input must not panic.
    let _ = decide(
        &Policy {
            attempts_max: u32::MAX,
            ..Policy::crawler()
        },
        &get(0),
        &status(500),
    );
    let _ = decide(&Policy::job_scraper(), &get(0), &status(500));
    let _ = decide(
        &Policy::crawler(),
        &Attempt {
            refusals: u32::MAX,
            consecutive_429: u32::MAX,
            ..get(u32::MAX)
        },
        &status(429),
    );
}

#[test]
fn the_servers_floor_is_never_shortened() {
    for policy in [Policy::crawler(), Policy::job_scraper()] {
        let delay = |report: &Report| match decide(&policy, &get(1), report) {
            Next::Retry {
                after,
                is_charged: true,
            } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            delay(&asking(120, 503)),
            Duration::from_mins(2),
            "longer than the backoff's cap"
        );
        assert_eq!(delay(&asking(3600, 503)), Duration::from_hours(1));
        assert_eq!(
            delay(&asking(0, 503)),
            delay(&status(503)),
            "zero says nothing"
        );
        for code in [503, 429] {
            let parked = Next::GiveUp(GiveUpReason::Parked(Duration::from_secs(3601)));
            assert_eq!(decide(&policy, &get(1), &asking(3601, code)), parked);
        }
    }
}

#[test]
fn reasons_read_well_in_a_log_line() {
    let lines = [
        (
            GiveUpReason::Permanent(Failure::NoSuchHost),
            "the host does not exist",
        ),
        (
            GiveUpReason::Parked(Duration::from_hours(2)),
            "parked: the host asked for 7200 s",
        ),
        (GiveUpReason::Consecutive429(2), "2 x 429 in a row"),
        (GiveUpReason::Status(404), "status 404 is final"),
    ];
    for (reason, line) in lines {
        assert_eq!(reason.to_string(), line);
    }
}

/// Regression: a host whose answers broke off was given up as one that never answered.
#[test]
fn a_host_that_never_answered_is_given_up_after_six_tries_and_one_whose_answers_break_off_is_not() {
    for (failure, is_silent) in [
        (Failure::Resolver, true),
        (Failure::Reset, true),
        (Failure::CutOff, false),
    ] {
        assert_given_up_after_six_tries(failure, is_silent);
    }
}

fn assert_given_up_after_six_tries(failure: Failure, is_silent: bool) {
    let policy = Policy::crawler();
    let (mut outage, mut attempt) = (Outage::default(), get(1));
    let report = failed(failure);
    for tries in 1..=6 {
        let now = Timestamp::from_micros(tries * 2_000_000);
        let directions = Directions::unknown(now);
        let company = Company::Unknown;
        let verdict = policy.judge(
            &mut outage,
            &mut attempt,
            &report,
            &directions,
            company,
            now,
        );
        assert_eq!(
            matches!(verdict, Verdict::GivenUp(_)),
            is_silent && tries == 6,
            "{failure:?}: {tries}"
        );
        assert_eq!(outage.has_answered(), !is_silent, "{failure:?}");
    }
}
