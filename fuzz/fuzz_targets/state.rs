//! Restores any bytes as a key's state. They are refused, or the state is used without a panic. A
//! restored state that is written again gives the same bytes.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{Ask, Decision, Host, OperatorNumbers};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};

const SIGNALS: [Signal; 6] = [
    Signal::Ok,
    Signal::RateLimited,
    Signal::Overloaded,
    Signal::Unreachable,
    Signal::Blocked,
    Signal::UrlError,
];

fuzz_target!(|input: (u64, Vec<u8>, Vec<u8>)| {
    let (now, state, steps) = input;
    for law in ["discover", "aimd"] {
        let config = Config::api().with_law(law.parse().expect("a law"));
        live(Timestamp::from_micros(now), &config, &state, &steps);
    }
});

fn live(now: Timestamp, config: &Config, state: &[u8], steps: &[u8]) {
    // Random bytes are seldom a valid state, so the steps also run on a new host.
    drive(Host::new(config, now), now, config, steps);
    let Ok(host) = Host::restore(state, now, config) else {
        return;
    };
    let written = host.snapshot();
    let again = Host::restore(&written, now, config).expect("what was written can be read");
    assert_eq!(again.snapshot(), written);
    drive(host, now, config, steps);
}

fn drive(mut host: Host, mut now: Timestamp, config: &Config, steps: &[u8]) {
    let mut rng = Rng::new(1);
    for &step in steps {
        now = now + Duration::from_millis(u64::from(step) * 10);
        let ask = Ask {
            slots: u16::from(step % 4),
            horizon: Duration::from_secs(u64::from(step % 3)),
            ..Ask::default()
        };
        let lease = match host.request(now, ask.clone(), config) {
            Decision::Granted(grant) => grant.lease,
            Decision::Wait(_) => LeaseId(u64::from(step)),
        };
        let signal = SIGNALS[usize::from(step) % SIGNALS.len()];
        host.report(now, lease, &Report::of(signal), config, &mut rng);
        let unused = (step % 2 == 0).then(|| ask.unused());
        host.cancel(now, LeaseId(u64::from(step)), unused, config);
        host.set(
            now,
            OperatorNumbers::rate(f64::from(step) + 0.1, 2.0),
            config,
        );
        let _ = host.explain(now, config).line(now);
        host.evictable(now, step % 2 == 0, config);
    }
}
