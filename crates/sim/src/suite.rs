//! The named suite: one scenario for each thing that a host may do and a law can get wrong.
//!
//! Random limits ([`mod@crate::generate`]) show how good a law is; these show where it fails.
//! Durations and numbers are those of the study that the law came from, so that figures can be
//! compared.

use crate::scenario::Scenario;

/// The suite's file, as a starting point for scenarios of your own.
pub const NAMED_JSON: &str = include_str!("../suite/named.json");

/// Returns the named scenarios, in the order of the table in the documentation.
///
/// # Panics
/// Never: a test reads the file.
pub fn suite() -> Vec<Scenario> {
    Scenario::read(NAMED_JSON).expect("the suite is tested to be valid")
}

#[cfg(test)]
mod tests;
