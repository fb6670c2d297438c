//! Real servers, which the tests use too.

#[path = "../../crates/cli/tests/it/servers/process.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
pub(crate) mod process;
#[path = "../../crates/cli/tests/it/servers/redis/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
pub(crate) mod redis;
#[path = "../../crates/cli/tests/it/servers/zookeeper.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
pub(crate) mod zookeeper;
