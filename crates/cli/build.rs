//! Finds the commit from which the binary is built and its features, for `politely --version`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=POLITELY_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let commit = env::var("POLITELY_COMMIT")
        .ok()
        .or_else(published_commit)
        .or_else(git_commit)
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=POLITELY_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=POLITELY_BUILD_FEATURES={}", features());
}

/// Returns the features of the binary: those that every build has, and those that were chosen.
fn features() -> String {
    let chosen = [
        "grpc",
        "otlp",
        "postgres",
        "proxy",
        "rivals",
        "top",
        "zookeeper",
    ];
    let chosen = chosen.into_iter().filter(|name| {
        let variable = format!("CARGO_FEATURE_{}", name.to_uppercase());
        env::var_os(variable).is_some()
    });
    let all: Vec<_> = ["coordinator", "redis", "http2", "tls-ring"]
        .into_iter()
        .chain(chosen)
        .collect();
    all.join(", ")
}

/// Returns the commit that `cargo publish` noted in the package.
fn published_commit() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    rest.get(..12).map(str::to_owned)
}

/// Returns the commit of the work tree. A debug build has none, because each commit would cause a
/// new build of this package and its tests.
fn git_commit() -> Option<String> {
    if env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
