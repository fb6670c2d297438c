//! Packages of this build: `lintian`, the unit's exposure, an installation, its removal, manifests.
//!
//! `scripts/test-packages` tests all packages of a release build.

use std::path::Path;
use std::process::Command;

use politely_testkit::process::tool;
use politely_testkit::repository;

fn succeeds(command: &mut Command) {
    let output = command.output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
}

/// Returns a script of the repository as root, which chroots need.
fn as_root(script: &str) -> Command {
    let script = repository().join(script);
    let id = Command::new("id").arg("-u").output().expect("id runs");
    if id.stdout == b"0\n" {
        return Command::new(script);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--preserve-env=PACKAGES", "--non-interactive"])
        .arg(script);
    sudo
}

#[test]
fn the_debian_package_installs_runs_and_leaves_nothing() {
    for name in ["lintian", "systemd-analyze", "dpkg-deb"] {
        tool(name);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let binary = folder.path().join("politely");
    let packages = folder.path().join("packages");
    let built = Path::new(env!("CARGO_BIN_EXE_politely"));
    succeeds(Command::new("strip").arg("-o").arg(&binary).arg(built));
    succeeds(
        Command::new(repository().join("scripts/package"))
            .arg("deb")
            .env("POLITELY_BINARY", &binary)
            .env("PACKAGES", &packages)
            // This build is large, and its package is not published.
            .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
            .env("DPKG_DEB_COMPRESSOR_LEVEL", "1"),
    );
    succeeds(
        as_root("scripts/test-packages")
            .args(["deb", "kubernetes"])
            .env("PACKAGES", &packages),
    );
}
