//! Names are looked up once for many requests. The tests have a file of hosts of their own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, Then};
use crate::run::fetch_at;

const PAGES: usize = 30;
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a run of pages of `host.test` in a mount namespace where `folder/hosts` names all hosts.
fn start(folder: &Path, server: &Server) -> Child {
    fs::write(folder.join("nsswitch"), "hosts: files\n").unwrap();
    let mount = "mount --bind hosts /etc/hosts && mount --bind nsswitch /etc/nsswitch.conf && exec \"$0\" \"$@\"";
    let fetch = fetch_at("20");
    let port = server.address.port();
    Command::new("unshare")
        .args(["-rm", "sh", "-ec", mount])
        .arg(fetch.get_program())
        .args(fetch.get_args())
        .args(["-o", "results.jsonl", "--retries", "0"])
        .args((0..PAGES).map(|page| format!("http://host.test:{port}/{page}")))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("messages")).unwrap())
        .spawn()
        .expect("this test needs `unshare` of util-linux")
}

/// Waits until the run ends, and asserts that it fetched everything.
fn succeeds(mut child: Child, folder: &Path) {
    let deadline = Instant::now() + PATIENCE;
    let said = || fs::read_to_string(folder.join("messages")).unwrap();
    let code = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended.code();
        }
        assert!(Instant::now() < deadline, "{}", said());
        std::thread::sleep(Duration::from_millis(20));
    };
    let hint = "this test needs user namespaces: sysctl kernel.unprivileged_userns_clone=1";
    assert_eq!(code, Some(0), "{hint}\n{}", said());
}

/// Starts a server that keeps no connection, so each request looks its name up.
fn server() -> Server {
    Server::start(|_, stream| {
        use std::io::Write as _;
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")?;
        Ok(Then::Close)
    })
}

fn wait_until(child: &mut Child, folder: &Path, is_reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_reached() {
        let said = || fs::read_to_string(folder.join("messages")).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "{}", said());
        assert!(Instant::now() < deadline, "{}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_address_is_kept_when_the_resolver_forgets_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = server();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 host.test\n").unwrap();
    let mut run = start(folder.path(), &server);
    wait_until(&mut run, folder.path(), || !server.counts().is_empty());
    fs::write(&hosts, "").unwrap();
    succeeds(run, folder.path());
    assert_eq!(server.counts().len(), PAGES);
}
