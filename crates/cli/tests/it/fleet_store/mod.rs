//! A fleet of `politely fetch --store` processes over hosts with known limits, while things go wrong with them or with Redis.
//!
//! Each process is its own coordinator; all they share is a real redis-server. What is safe is judged by what the hosts,
//! which live in this process, logged.

mod crew;
mod engine_away;
mod engine_forgets;
mod engine_restarts;
mod engine_stalls;
mod failover;
mod frozen;
mod killed;
mod lost_replies;
mod proxy;
mod refusals;
mod town;
mod verdict;
mod zombie;
