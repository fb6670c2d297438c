//! The facts about the build of this binary.

/// The commit, or `unknown`, as in a debug build.
pub(crate) const COMMIT: &str = env!("POLITELY_BUILD_COMMIT");

/// The text of `politely --version`. `politely -V` prints the version alone.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("POLITELY_BUILD_COMMIT"),
    "\nfeatures: coordinator, redis, zookeeper, http2, tls-ring",
);
