//! The integration tests of the command line, built as a single binary. They run real processes
//! with real sockets. `scripts/setup` installs the tools that they need beside Rust.

#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

mod bad_input;
mod bad_pages;
mod changed_limits;
mod coordinator_fetch;
mod coordinator_tls;
mod crash_loop;
mod crawl_delay;
mod dashboard;
mod declared_limits;
mod demo;
mod documents;
mod durable;
mod engine_settings;
mod estimates;
mod fetch_pages;
mod fleet;
mod fleet_store;
mod frontier;
mod frontier_crawl;
mod frontier_fleet;
mod full_disk;
mod full_disk_fetch;
mod h2_trouble;
mod hosts;
mod http_oddities;
mod json_log;
mod language;
mod limits_after_kills;
mod lock;
mod manual;
mod metrics;
mod misbehaving;
mod names;
mod no_effect;
mod otlp;
mod packages;
mod policy;
mod proxies;
mod proxy_by;
mod python_client;
mod real_peers;
mod refusals;
mod resume;
mod run;
mod run_ends;
mod secrets;
mod simulate;
mod tidy;
mod top;
mod town;
mod trouble_settings;
mod upgrade;
mod zookeeper_peer;
