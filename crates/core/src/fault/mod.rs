//! Blame for a failure: it counts against one of four levels, and against none above it.
//!
//! | level | what fails | who finds it out | what happens |
//! | --- | --- | --- | --- |
//! | own machine | the link, the resolver, the descriptors | [`Machine`] | requests pause |
//! | way | one of several proxies | [`Ways`] | the request takes another one at once |
//! | host | an outage, a limit, a block | [`Outage`], [`crate::host::Host::report`] | the host's pages wait |
//! | page | one URL, while others are served | [`Outage`] | the page's attempts are spent |
//!
//! A caller asks from top to bottom. What a machine or a way did is not reported to the host, and
//! what a host did costs no page an attempt: [`Outage::failed`] gives the [`Verdict`], and
//! [`crate::retry::Policy::decide`] obeys it.

pub mod machine;
mod outage;
pub mod way;

pub use machine::Machine;
pub use outage::{Company, Failed, Failures, GivenUp, Outage, Verdict};
pub use way::Ways;
