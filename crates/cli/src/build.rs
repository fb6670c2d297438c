//! The facts about the build of this binary.

/// The commit, or `unknown`, as in a debug build.
pub(crate) const COMMIT: &str = env!("POLITELY_BUILD_COMMIT");

/// The text of `politely --version`. `politely -V` prints the version alone.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("POLITELY_BUILD_COMMIT"),
    "\nfeatures: ",
    env!("POLITELY_BUILD_FEATURES"),
);

/// Returns the error for a command or value that this binary was built without.
#[cfg(not(all(
    feature = "grpc",
    feature = "postgres",
    feature = "proxy",
    feature = "rivals",
    feature = "top",
    feature = "zookeeper"
)))]
pub(crate) fn without(what: &str, feature: &str) -> crate::exit::Wrong {
    crate::exit::Wrong(format!(
        "this binary has no {what}: install the package, or build with --features {feature}"
    ))
}
