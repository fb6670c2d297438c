//! A fleet of `politely fetch --store` processes over hosts with known limits, while things go
//! wrong with them or with Redis.
//!
//! Each process is its own coordinator; all they share is a real redis-server. What is safe is
//! judged by what the hosts, which live in this process, logged.
//!
//! Three of these run with all tests; the others take minutes and are behind the feature `faults`
//! (`scripts/faults`).

#[cfg_attr(
    not(feature = "faults"),
    allow(dead_code, reason = "most of it is for the feature")
)]
mod crew;
#[cfg(feature = "faults")]
mod engine_away;
mod engine_forgets;
#[cfg(feature = "faults")]
mod engine_restarts;
#[cfg(feature = "faults")]
mod engine_stalls;
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
mod proxy;
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
