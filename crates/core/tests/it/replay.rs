//! P9: the same seed and the same events give the same bytes.

use politely_core::config::Config;
use proptest::prelude::*;

use crate::model::{Op, config, config_discover, ops, ops_any_clock};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_same_events_leave_the_same_bytes(config in config(), ops in ops_any_clock(120), seed: u64) {
        twice(&config, &ops, seed)?;
    }

    #[test]
    fn restoring_after_every_event_changes_nothing(config in config(), ops in ops(120), seed: u64) {
        restored(&config, &ops, seed)?;
    }

    #[test]
    fn the_same_events_lead_discover_to_the_same_bytes(config in config_discover(), ops in ops_any_clock(120), seed: u64) {
        twice(&config, &ops, seed)?;
    }

    #[test]
    fn what_was_discovered_is_there_after_every_restore(config in config_discover(), ops in ops(120), seed: u64) {
        restored(&config, &ops, seed)?;
    }
}

fn twice(config: &Config, ops: &[Op], seed: u64) -> Result<(), TestCaseError> {
    let (mut one, mut two) = (
        World::new(config.clone(), seed),
        World::new(config.clone(), seed),
    );
    for op in ops {
        one.step(op);
        two.step(op);
        prop_assert_eq!(one.host.snapshot(), two.host.snapshot());
    }
    Ok(())
}

fn restored(config: &Config, ops: &[Op], seed: u64) -> Result<(), TestCaseError> {
    let (mut one, mut two) = (
        World::new(config.clone(), seed),
        World::new(config.clone(), seed),
    );
    for op in ops {
        one.step(op);
        two.step(op);
        two.step(&Op::Restore);
    }
    prop_assert_eq!(one.host.snapshot(), two.host.snapshot());
    prop_assert_eq!(one.arrived(), two.arrived());
    Ok(())
}
