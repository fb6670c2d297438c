//! Real servers, which the tests of the command line use too.
#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

#[path = "../../../cli/tests/it/servers/process.rs"]
#[allow(dead_code, reason = "the tests of the command line use all of it")]
pub(crate) mod process;
#[cfg(feature = "redis")]
#[path = "../../../cli/tests/it/servers/redis/mod.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
#[path = "../../../cli/tests/it/servers/zookeeper.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
pub(crate) mod zookeeper;
