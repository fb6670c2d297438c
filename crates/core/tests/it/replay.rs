//! P9: same seed, same events, same bytes.

use proptest::prelude::*;

use crate::model::{Op, config, ops, ops_any_clock};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_same_events_leave_the_same_bytes(config in config(), ops in ops_any_clock(120), seed: u64) {
        let (mut one, mut two) = (World::new(config.clone(), seed), World::new(config, seed));
        for op in &ops {
            one.step(op);
            two.step(op);
            prop_assert_eq!(one.host.snapshot(), two.host.snapshot());
        }
    }

    #[test]
    fn restoring_after_every_event_changes_nothing(config in config(), ops in ops(120), seed: u64) {
        let (mut one, mut two) = (World::new(config.clone(), seed), World::new(config, seed));
        for op in &ops {
            one.step(op);
            two.step(op);
            two.step(&Op::Restore);
        }
        prop_assert_eq!(one.host.snapshot(), two.host.snapshot());
        prop_assert_eq!(one.arrived(), two.arrived());
    }
}
