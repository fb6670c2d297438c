//! P1 to P4, the single probe of a breaker, and the canary, under random operations of any number
//! of workers.

use politely_core::config::Config;
use proptest::prelude::*;

use crate::model::{Op, config, config_discover, ops, ops_any_clock};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn promises_hold_whatever_happens(config in config(), ops in ops(150), seed: u64) {
        keep_them(config, &ops, seed);
    }

    #[test]
    fn promises_hold_with_a_clock_that_steps_back(config in config(), ops in ops_any_clock(150), seed: u64) {
        keep_them(config, &ops, seed);
    }

    #[test]
    fn promises_hold_while_limits_are_discovered(config in config_discover(), ops in ops(150), seed: u64) {
        keep_them(config, &ops, seed);
    }

    #[test]
    fn promises_hold_while_limits_are_discovered_by_a_clock_that_steps_back(
        config in config_discover(),
        ops in ops_any_clock(150),
        seed: u64,
    ) {
        keep_them(config, &ops, seed);
    }
}

fn keep_them(config: Config, ops: &[Op], seed: u64) {
    let mut world = World::new(config, seed);
    world.run(ops);
    world.close();
}
