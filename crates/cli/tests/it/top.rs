//! Tests of `politely top` with a real coordinator: printed once, and live on a pseudo-terminal.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{politely, run, write_secret};
use politely_testkit::process::{Server, free_place, tool};

const TOKEN: &str = "a-token-of-the-tests";
/// Longest wait for a screen. A loaded machine draws its first one in a second or two.
const DEADLINE: Duration = Duration::from_mins(1);

struct Coordinator {
    _server: Server,
    url: String,
}

impl Coordinator {
    fn start(folder: &Path, args: &[&str]) -> Self {
        Self::start_at(free_place(), folder, args)
    }

    fn start_at(place: SocketAddr, folder: &Path, args: &[&str]) -> Self {
        let bind = format!("--bind={place}");
        let all = ["serve", "--memory", &bind];
        let binary = Path::new(env!("CARGO_BIN_EXE_politely"));
        let mut server = Server::start("serve", folder, binary, all.iter().chain(args));
        let url = format!("http://{place}");
        server.says(&url);
        Self {
            url,
            _server: server,
        }
    }

    /// Changes a setting of a key, which creates the key.
    fn patch(&self, key: &str, body: &str) {
        let address = self.url.strip_prefix("http://").expect("no TLS");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let length = body.len();
        let call = format!(
            "PATCH /api/v1/keys/{key} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(call.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

fn once(url: &str) -> Command {
    let mut command = politely();
    command.env_remove("POLITELY_TOKEN");
    command.args(["top", "--once", "--coordinator", url]);
    command
}

#[test]
fn once_prints_the_table() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let coordinator = Coordinator::start(folder.path(), &[]);
    coordinator.patch("shop.example", r#"{"rate": 0.25, "in_flight": 1}"#);
    coordinator.patch("custom%2Faccount-7", r#"{"hold_ms": 60000}"#);

    let said = run(&mut once(&coordinator.url));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let lines: Vec<&str> = said.out.lines().collect();
    let [fleet, titles, held, shop] = lines[..] else {
        panic!("{}", said.out);
    };
    assert!(fleet.contains("keys 2, waiting 0, live 0"), "{fleet}");
    assert!(
        titles.starts_with("key ") && titles.ends_with("  why"),
        "{titles}"
    );
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(shop)[..2], ["shop.example", "ready"]);
    assert!(
        shop.contains("  0.25  ") && shop.contains("  0/1  "),
        "{shop}"
    );
    assert_eq!(words(held)[..2], ["custom/account-7", "hold"]);
    assert!(held.contains("  waits ") && held.contains("hold"), "{held}");

    // Of several coordinators, `top` uses the first that answers.
    let several = format!("http://{}, {}", free_place(), coordinator.url);
    let again = run(&mut once(&several));
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert!(again.out.contains("shop.example"), "{}", again.out);
}

#[test]
fn once_says_in_a_line_why_there_is_no_table() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("token");
    write_secret(&file, TOKEN);
    let file = file.to_str().expect("UTF-8");
    let coordinator = Coordinator::start(folder.path(), &["--token-file", file]);

    let refused = run(&mut once(&coordinator.url));
    let wrong = run(once(&coordinator.url).env("POLITELY_TOKEN", "another-token-of-the-tests"));
    for said in [refused, wrong] {
        assert_eq!((said.code, said.out.as_str()), (2, ""));
        assert_eq!(
            said.lines("the token of POLITELY_TOKEN or --token-file")
                .len(),
            1,
            "{}",
            said.err
        );
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    assert_eq!(
        run(once(&coordinator.url).args(["--token-file", file])).code,
        0
    );
    assert_eq!(
        run(once(&coordinator.url).env("POLITELY_TOKEN", TOKEN)).code,
        0
    );

    let nobody = format!("http://{}", free_place());
    let said = run(&mut once(&nobody));
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert_eq!(
        said.err,
        format!(
            "error: {nobody}: no answer: connection refused; \
             start `politely serve`, or name another with --coordinator URL\n"
        )
    );
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let said = run(politely().args(["top"]));
    assert_eq!(said.code, 2);
    assert_eq!(said.lines("politely top --once").len(), 1, "{}", said.err);
}

/// `politely top` on a pseudo-terminal of 80 columns and 24 lines, made by `script` (util-linux).
struct Screen {
    child: Child,
    seen: std::path::PathBuf,
}

impl Screen {
    fn start(folder: &Path, url: &str) -> Self {
        let seen = folder.join("screen");
        let binary = env!("CARGO_BIN_EXE_politely");
        let command = format!("stty cols 80 rows 24; exec '{binary}' top --coordinator '{url}'");
        let child = Command::new(tool("script"))
            .args(["--quiet", "--return", "--flush", "--command", &command])
            .arg(&seen)
            .env("TERM", "xterm-256color")
            .env_remove("POLITELY_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("script runs");
        Self { child, seen }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Waits until `word` is drawn over blanks. `top` draws only changed cells, so a word that
    /// replaces another one is drawn in parts.
    fn shows(&mut self, word: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.all().contains(word) {
            assert!(
                Instant::now() < deadline,
                "never showed `{word}`: {:?}",
                self.all()
            );
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended: {:?}", self.all());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.seen).unwrap_or_default()).into_owned()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_shows_the_keys_and_is_put_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = free_place();
    let mut screen = Screen::start(folder.path(), &format!("http://{place}"));
    // No coordinator listens yet: the screen says so, and `top` keeps trying.
    screen.shows("refused;");
    let coordinator = Coordinator::start_at(place, folder.path(), &[]);
    coordinator.patch("held.example", r#"{"hold_ms": 60000}"#);
    screen.shows("held.example");
    screen.press("\r");
    screen.shows("latency");
    screen.press("\u{3}");
    let ended = screen.child.wait().expect("a child");
    let all = screen.all();
    assert!(ended.success(), "{all:?}");
    let (_, after) = all
        .rsplit_once("\u{1b}[?1049h")
        .expect("a screen of its own");
    assert!(after.contains("\u{1b}[?1049l"), "{after:?}");
}
