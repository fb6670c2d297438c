//! A fleet of `politely fetch --store` processes over hosts with known limits, while faults happen
//! to them or to their engine.
//!
//! Each process is its own coordinator; the processes share only a real redis-server, or a real
//! ensemble of `ZooKeeper` servers. The hosts run in this process, and the tests judge safety by
//! their logs.
//!
//! Four of these tests run with all tests. The others take minutes and need the feature `faults`
//! (`scripts/faults`).

#[cfg_attr(
    not(feature = "faults"),
    allow(dead_code, reason = "most of it is for the feature")
)]
mod crew;
mod engine_forgets;
#[cfg(feature = "faults")]
mod engine_restarts;
#[cfg(feature = "faults")]
mod engine_stalls;
#[cfg(feature = "faults")]
mod engine_unavailable;
#[cfg(feature = "faults")]
mod failover;
#[cfg(feature = "faults")]
mod frozen;
mod killed;
mod lost_replies;
#[cfg_attr(
    not(feature = "faults"),
    allow(dead_code, reason = "most of it is for the feature")
)]
pub(crate) mod proxy;
#[cfg(feature = "faults")]
mod refusals;
#[cfg(feature = "faults")]
mod town;
#[cfg_attr(
    not(feature = "faults"),
    allow(dead_code, reason = "most of it is for the feature")
)]
mod verdict;
#[cfg(feature = "faults")]
mod zombie;
#[cfg(feature = "faults")]
mod zookeeper;
