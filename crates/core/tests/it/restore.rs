//! Tests of serialised states: they are small, and no input bytes do harm.

use std::time::Duration;

use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::host::{AcquireRequest, Decision, Host, OperatorNumbers};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::model::{Op, config, config_discover, ops};
use crate::world::World;

/// Calls every method of a state that was restored. No call may panic.
fn drive(mut host: Host, world: &mut World) {
    let written = host.snapshot();
    let again = Host::restore(&written, world.now, &world.config).expect("what was written");
    assert_eq!(again.snapshot(), written);
    for i in 0..20_u64 {
        let now = world.now + Duration::from_millis(i * 700);
        world.poke(&mut host, now, i);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in vec(any::<u8>(), 0..400),
        layout in 2..=3_u8,
        config in prop_oneof![config(), config_discover()],
        now: u64,
    ) {
        if let Some(version) = bytes.first_mut() {
            *version = layout;
        }
        let mut world = World::new(config.clone(), 1);
        world.now = Timestamp::from_micros(now);
        if let Ok(host) = Host::restore(&bytes, world.now, &config) {
            drive(host, &mut world);
        }
    }

    #[test]
    fn damaged_states_never_panic(
        config in config(),
        ops in ops(40),
        damage in damage(),
        cut: Option<Index>,
        seed: u64,
    ) {
        survive(config, &ops, &damage, cut, seed);
    }

    #[test]
    fn damaged_discoveries_never_panic(
        config in config_discover(),
        ops in ops(40),
        damage in damage(),
        cut: Option<Index>,
        seed: u64,
    ) {
        survive(config, &ops, &damage, cut, seed);
    }
}

fn damage() -> impl Strategy<Value = Vec<(Index, u8)>> {
    vec((any::<Index>(), any::<u8>()), 1..6)
}

/// Runs `ops` and damages bytes of the state. If the state can still be restored, uses it.
fn survive(config: Config, ops: &[Op], damage: &[(Index, u8)], cut: Option<Index>, seed: u64) {
    let mut world = World::new(config, seed);
    world.run(ops);
    let mut bytes = world.host.snapshot();
    if let Some(cut) = cut.filter(|_| seed.is_multiple_of(2)) {
        bytes.truncate(cut.index(bytes.len()));
    }
    for (at, value) in damage {
        if bytes.len() > 1 {
            let at = 1 + at.index(bytes.len() - 1);
            bytes[at] = *value;
        }
    }
    if let Ok(host) = Host::restore(&bytes, world.now, &world.config) {
        drive(host, &mut world);
    }
}

#[test]
fn a_state_is_small() {
    for (law, most) in [("aimd", 128), ("discover", 256)] {
        small(law.parse().expect("a law"), most);
    }
}

/// Asserts the size of a young state. [`crate::long`] tests a long life.
fn small(law: LawConfig, most: usize) {
    // This state is typical: times in microseconds since 1970 in every field, one request in
    // flight.
    let mut config = Config::crawler().with_law(law);
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    let (mut host, mut rng) = (Host::new(&config, now), Rng::new(1));
    let mut sizes = vec![host.snapshot().len()];
    config.limits.in_flight = 8;
    config.limits.burst = 8.0;
    for i in 0..8_u64 {
        let now = now + Duration::from_mins(i);
        if let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config)
            && i < 4
        {
            let signal = [Signal::Ok, Signal::RateLimited][i as usize % 2];
            let report = Report {
                status: Some(429),
                retry_after: Some(Duration::from_secs(30)),
                ..Report::of(signal)
            };
            host.report(now, grant.lease, &report, &config, &mut rng);
        }
        sizes.push(host.snapshot().len());
    }
    assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");

    config.limits.in_flight = 16;
    config.limits.burst = 16.0;
    let mut host = Host::new(&config, now);
    for _ in 0..16 {
        host.request(now, AcquireRequest::default(), &config);
    }
    let size = host.snapshot().len();
    assert!(size <= 128, "{size}");
}

fn number() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(f64::NAN),
    ])
}

proptest! {
    /// Regression: with a rate of 0 the state could not be read again, and a shared key stopped for
    /// all processes.
    #[test]
    fn whatever_an_operator_sets_can_be_read_again(
        config in prop_oneof![config(), config_discover()],
        ops in ops(40),
        rate in number(),
        burst in number(),
        in_flight: Option<u32>,
        seed: u64,
    ) {
        let mut world = World::new(config.clone(), seed);
        world.run(&ops);
        let now = world.now;
        world.host.set(now, OperatorNumbers { rate, burst, in_flight, ..OperatorNumbers::default() }, &config);
        let written = world.host.snapshot();
        let again = Host::restore(&written, now, &config);
        prop_assert_eq!(again.map(|host| host.snapshot()), Ok(written));
    }
}
