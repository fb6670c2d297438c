//! Another `ZooKeeper` client, Python's `kazoo`, reads the znodes of two coordinators.

use std::path::PathBuf;

use politely_testkit::process::Server;
use politely_testkit::repository;
use politely_testkit::zookeeper::Ensemble;

#[test]
fn kazoo_sees_cells_changes_and_members() {
    let ensemble = Ensemble::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_politely"));
    let url = ensemble.url("/politely").replace("://", "://ann:secret@");
    let serve = |name| {
        let args = ["serve", "--store", &url, "--bind", "127.0.0.1:0"];
        let mut coordinator = Server::start(name, folder.path(), &binary, args);
        let said = coordinator.says("politely: http");
        (coordinator, said.replace("politely: ", ""))
    };
    let (_first, address) = serve("first");
    let (second, _) = serve("second");
    let script = repository().join("crates/cli/tests/it/zookeeper_peer.py");
    let python = repository().join(".venv/bin/python");
    let args = [script.display().to_string(), ensemble.servers(), address];
    let mut peer = Server::start("kazoo", folder.path(), &python, args);
    peer.says("sees two members");
    drop(second);
    peer.says("all is well");
}
