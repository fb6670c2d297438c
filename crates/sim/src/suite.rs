//! The named suite: one scenario for each thing a host may do that a law can get wrong.
//!
//! Random limits ([`mod@crate::generate`]) say how good a law is; these say what at. Durations and numbers are
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
mod tests;
