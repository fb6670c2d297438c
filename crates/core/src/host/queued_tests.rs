//! Requests that wait in a queue of the caller.

use std::time::Duration;

use crate::config::Config;
use crate::host::{AcquireRequest, Decision, Host, Reason, Wait};
use crate::signal::{Report, Signal};
use crate::{Rng, Timestamp};

#[test]
fn the_pace_a_refusal_and_a_declared_cap_bind_but_no_learned_cap() {
    let mut config = Config::fixed(1.0, 1.0);
    config.limits.in_flight = 2;
    let mut now = Timestamp::from_micros(100_000_000);
    let mut host = Host::new(&config, now);
    let queued = AcquireRequest {
        slots: 10,
        is_queued: true,
        ..AcquireRequest::default()
    };
    let mut leases = Vec::new();
    for in_flight in [3, 6, 9] {
        let Decision::Granted(grant) = host.request(now, queued.clone(), &config) else {
            panic!("three seconds have passed");
        };
        assert_eq!((grant.slots, host.in_flight()), (3, in_flight));
        leases.extend(grant.lease.run(grant.slots));
        let early = host.request(now + Duration::from_millis(2_900), queued.clone(), &config);
        assert!(
            matches!(
                early,
                Decision::Wait(Wait {
                    reason: Reason::Pace,
                    ..
                })
            ),
            "{early:?}"
        );
        now = now + Duration::from_secs(3);
    }
    let mut capped = host.clone();
    capped.declare(now, "10 concurrent".parse().ok(), &config);
    let Decision::Granted(grant) = capped.request(now, queued.clone(), &config) else {
        panic!("nine of ten are in flight");
    };
    assert_eq!(grant.slots, 1);
    let refused = Report::of(Signal::RateLimited);
    host.report(now, leases[0], &refused, &config, &mut Rng::new(1));
    now = now + Duration::from_mins(1);
    let waits = host.request(now, queued, &config);
    assert!(
        matches!(
            waits,
            Decision::Wait(Wait {
                reason: Reason::InFlight,
                ..
            })
        ),
        "{waits:?}"
    );
}
