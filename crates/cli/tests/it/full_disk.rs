//! A frontier on a disk that is full for a while: one clear line for each call, nothing
//! acknowledged is lost, and it goes on when there is room.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use politely::core::Rng;
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{Said, politely, run};
use politely_testkit::process::{Server, free_place};

/// The size of the disk, and of the file that takes most of it.
const DISK: &str = "96m";
const BALLAST: usize = 56 << 20;
/// The pages of one file, and the bytes of each page's metadata.
const PAGES: usize = 200;
const METADATA: usize = 12_000;
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a coordinator in a mount namespace of its own, with a small disk at `folder/disk`.
fn serve(folder: &Path, address: SocketAddr) -> Server {
    let disk = folder.join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mount = format!("mount -t tmpfs -o size={DISK} politely \"$0\" && exec \"$@\"");
    let args = [
        "-rm".to_owned(),
        "sh".to_owned(),
        "-c".to_owned(),
        mount,
        disk.display().to_string(),
        env!("CARGO_BIN_EXE_politely").to_owned(),
        "serve".to_owned(),
        "--memory".to_owned(),
        format!("--bind={address}"),
        format!("--frontier={}", disk.join("frontier").display()),
    ];
    let mut server = Server::start("politely", folder, Path::new("unshare"), args);
    server.says("politely: http://");
    server
}

/// Writes a list of pages whose metadata does not compress well.
fn list(folder: &Path, number: usize) -> PathBuf {
    let mut rng = Rng::new(number as u64);
    let mut text = String::new();
    for page in 0..PAGES {
        let random = std::iter::repeat_with(|| format!("{:016x}", rng.next_u64()));
        let metadata: String = random.take(METADATA / 16).collect();
        let url = format!("https://host-{page}.example/{number}");
        text += &json!({"url": url, "metadata": metadata}).to_string();
        text.push('\n');
    }
    let file = folder.join(format!("list-{number}"));
    fs::write(&file, text).expect("a list");
    file
}

fn import(address: SocketAddr, file: &Path) -> Said {
    let url = format!("http://{address}");
    run(politely()
        .args(["frontier", "import", "c"])
        .arg(file)
        .args(["--coordinator", &url]))
}

fn readiness(address: SocketAddr) -> (u16, String) {
    let deadline = Instant::now() + PATIENCE;
    let answer = Http::new(address).call("GET", "/readyz", "", deadline);
    let answer = answer.expect("an answer");
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or_default().to_owned();
    (answer.status, detail)
}

#[test]
fn a_full_disk_is_one_clear_line_and_ends_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_place();
    let server = serve(folder.path(), address);
    // The server's namespace as this process sees it.
    let seen = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let disk = folder.path().join("disk");
    let ballast = seen
        .join(disk.strip_prefix("/").expect("an absolute path"))
        .join("ballast");
    fs::write(&ballast, vec![1; BALLAST]).expect("room for the ballast");

    // The coordinator opens the storage again every second, which needs less room than a page. So
    // the disk is filled until a call was refused and the storage is not open again.
    let full = "the storage of the frontier failed";
    let mut acknowledged = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        let file = list(folder.path(), number);
        let said = import(address, &file);
        let (status, detail) = readiness(address);
        if said.code == 0 {
            acknowledged.push(file);
        } else {
            assert_eq!(said.err.lines().count(), 1, "{}", said.err);
            assert!(said.err.contains(full), "{}", said.err);
            if status == 503 {
                assert!(detail.contains(full) && !detail.contains('\n'), "{detail}");
                break;
            }
        }
        assert!(Instant::now() < deadline, "{}", server.talk());
    }
    assert!(!acknowledged.is_empty(), "{}", server.talk());
    let again = import(address, &acknowledged[0]);
    if again.code != 0 {
        assert_eq!(again.err.lines().count(), 1, "{}", again.err);
        assert!(again.err.contains(full), "{}", again.err);
    }

    fs::remove_file(&ballast).expect("the ballast");
    let deadline = Instant::now() + PATIENCE;
    while readiness(address).0 != 200 {
        assert!(Instant::now() < deadline, "{}", server.talk());
        thread::sleep(Duration::from_millis(50));
    }
    for file in &acknowledged {
        let said = import(address, file);
        let known = format!("0 pages are new, {PAGES} known");
        assert!(said.err.contains(&known), "{}", said.err);
    }
    let said = import(address, &list(folder.path(), usize::MAX));
    let new = format!("{PAGES} pages are new, 0 known");
    assert!(said.err.contains(&new), "{}", said.err);
}
