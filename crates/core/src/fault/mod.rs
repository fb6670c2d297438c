//! Blame for a failure: it counts against one of four levels, and against none above it.
//!
//! | level | what fails | state | what happens |
//! | --- | --- | --- | --- |
//! | own machine | the link, the resolver, the descriptors, a full disk | [`Machine`] | requests pause |
//! | way | one of several proxies | [`Ways`] | the request takes another one at once |
//! | host | an outage | [`Outage`] | the host's pages wait |
//! | page | one URL, while others are served | [`Failures`] | its attempts are spent |
//!
//! Limits and blocks of a host are in [`crate::host::Host::report`].
//!
//! A caller asks from top to bottom. What a machine or a way did is not reported to the host, and
//! what a host did costs no page an attempt: [`crate::retry::Policy::judge`] gives the
//! [`Verdict`], and [`crate::retry::Policy::decide`] obeys it.

pub mod machine;
mod outage;
pub mod way;

pub use machine::Machine;
pub use outage::{Company, Failures, GivenUp, Outage, Verdict};
pub(crate) use outage::{Failed, Reply};
pub use way::Ways;
