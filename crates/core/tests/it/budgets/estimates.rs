//! Estimated costs, and what they turn out to be.

use super::*;

#[test]
fn an_estimate_is_settled() {
    let config = config(1_000.0, "100/min; 10000 tokens/min");
    let mut host = Host::new(&config, at(1));
    let mut rng = Rng::new(1);
    let left = |host: &Host, secs| host.explain(at(secs), &config).budgets[1].remaining;
    let settled = |used| Report {
        used: tokens(used),
        ..Report::of(Signal::Ok)
    };
    // Less than estimated returns, and more is owed.
    let grant = granted(&mut host, at(1), 1_000, &config);
    assert_eq!(left(&host, 1), 9_000);
    host.report(at(2), grant.lease, &settled(340), &config, &mut rng);
    assert_eq!(left(&host, 2), 9_660);
    let grant = granted(&mut host, at(3), 1_000, &config);
    host.report(at(4), grant.lease, &settled(6_000), &config, &mut rng);
    assert_eq!(left(&host, 4), 3_660);
    // A report that comes twice is settled once.
    host.report(at(4), grant.lease, &settled(1), &config, &mut rng);
    assert_eq!(left(&host, 4), 3_660);
    // The head may state less than the end of the body.
    let grant = granted(&mut host, at(5), 1_000, &config);
    host.on_head(at(5), grant.lease, &settled(10), &config, &mut rng);
    host.settle(at(6), grant.lease, &tokens(60), &config);
    host.release(at(6), grant.lease, 0, &config);
    assert_eq!(left(&host, 6), 3_600);
    // A request that did not leave costs nothing.
    let grant = granted(&mut host, at(7), 1_000, &config);
    host.cancel(at(7), grant.lease, Some(grant.unused), &config);
    assert_eq!(left(&host, 7), 3_600);
    // A permit that is never settled counts as estimated when its lease ends.
    granted(&mut host, at(8), 600, &config);
    let state = host.snapshot();
    let mut host = Host::restore(&state, at(9), &config).expect("its own bytes");
    host.forget_leases();
    assert_eq!(left(&host, 9), 3_000);
    // A request of more than is left waits, and one that states no tokens does not.
    let Decision::Wait(wait) = host.request(at(9), asks(3_001), &config) else {
        panic!("too few tokens are left")
    };
    assert_eq!(wait.reason, Reason::Budget);
    let plain = host.request(at(9), AcquireRequest::default(), &config);
    assert!(matches!(plain, Decision::Granted(_)));
    // An estimate above the whole limit never fits.
    let limit = host.never_fits(&asks(10_001), &config).expect("a limit");
    assert_eq!(limit.to_string(), "10000 tokens/min");
    assert_eq!(host.never_fits(&asks(10_000), &config), None);
}

/// Estimates that are wrong by ten times either way still use nearly the whole quantity.
#[test]
fn wrong_estimates_use_the_tokens() {
    let config = config(1_000.0, "1000/min; 200k tokens/min");
    let begin = at(1_795_000_000);
    let (mut host, mut now, mut rng) = (Host::new(&config, begin), begin, Rng::new(3));
    let mut used: Vec<(Timestamp, u64)> = Vec::new();
    let end = begin + HOUR;
    while now < end {
        let truth = 200 + rng.next_u64() % 400;
        let estimate = if rng.next_u64() % 2 == 0 {
            truth / 10
        } else {
            truth * 10
        };
        match host.request(now, asks(estimate), &config) {
            Decision::Granted(grant) => {
                let report = Report {
                    used: tokens(truth),
                    ..Report::of(Signal::Ok)
                };
                let done = now + Duration::from_millis(200);
                host.report(done, grant.lease, &report, &config, &mut rng);
                used.push((grant.start, truth));
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    let total: u64 = used.iter().map(|(_, used)| used).sum();
    let share = total as f64 / (200_000.0 * 60.0);
    assert!(share >= 0.95, "{share}");
}
