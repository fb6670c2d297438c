//! The named suite: one scenario for each thing a host may do that a law can get wrong.
//!
//! Random limits ([`crate::generate`]) say how good a law is; these say what at. Durations and numbers are
//! those of the study the law came from where it had them, so that its figures can be compared.

use crate::scenario::Scenario;

/// The file, for whoever wants to see one or start from it.
pub const NAMED_JSON: &str = include_str!("../suite/named.json");

/// The named scenarios, in the order of the README's table.
///
/// # Panics
/// Never: a test reads the file.
pub fn suite() -> Vec<Scenario> {
    Scenario::read(NAMED_JSON).expect("the suite is tested to be valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_valid_and_every_name_is_its_own() {
        let suite = suite();
        assert!(suite.len() >= 30, "{}", suite.len());
        let mut names: Vec<&str> = suite.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), suite.len());
    }

    #[test]
    fn every_kind_of_limit_and_fault_is_in_it() {
        for kind in [
            "token_bucket",
            "fixed_window",
            "sliding_log",
            "sliding_counter",
            "leaky",
            "concurrency_reject",
            "concurrency_queue",
            "all",
            "steps",
            "walk",
            "day",
            "shared",
            "none",
            "noise",
            "outage",
            "brownout",
            "block",
            "ban",
        ] {
            assert!(
                NAMED_JSON.contains(&format!(r#"{{"kind": "{kind}""#)),
                "{kind}"
            );
        }
    }
}
