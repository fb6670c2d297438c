//! Tests of a coordinator with TLS and a certificate from the fleet's own authority. Workers that
//! know the authority are served, and others get an error that says what is wrong.
//! `clients/python/tests/test_tls.py` tests the Python client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use politely::{Key, Limiter, Report, Signal};
use tempfile::TempDir;

use crate::misbehaving::Server as Pages;
use crate::run::{politely, run, write_secret};
use politely_testkit::process::{Server, tool};

const TOKEN: &str = "a-token-of-the-tests";
const PATIENCE: Duration = Duration::from_mins(1);

/// A coordinator at an `https` address, with a token.
struct Secured {
    url: String,
    folder: TempDir,
    _process: Server,
}

impl Secured {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        write_secret(path("token").as_ref(), TOKEN);
        certify(folder.path());
        let args = [
            "serve",
            "--memory",
            "--bind=127.0.0.1:0",
            "--law=fixed",
            "--rate=1000",
            &format!("--token-file={}", path("token")),
            &format!("--tls-cert={}", path("cert.pem")),
            &format!("--tls-key={}", path("key.pem")),
        ];
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let mut process = Server::start("politely", folder.path(), program, args);
        let line = process.says("politely: https://");
        Self {
            url: line.trim_start_matches("politely: ").to_owned(),
            folder,
            _process: process,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn limiter(&self, ca: Option<PathBuf>) -> Limiter {
        let builder = Limiter::builder().coordinator(&self.url).token(TOKEN);
        let builder = match ca {
            Some(ca) => builder.ca(ca),
            None => builder,
        };
        builder.build().expect("a limiter")
    }
}

/// Writes the certificate of an authority, `ca.pem`, and a certificate that it signed for 127.0.0.1
/// with its key: `cert.pem`, `key.pem`.
pub(crate) fn certify(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(
        folder,
        &format!("req -x509 {key} -subj /CN=authority -keyout ca-key.pem -out ca.pem"),
    );
    openssl(
        folder,
        &format!(
            "req -x509 -CA ca.pem -CAkey ca-key.pem {key} -subj /CN=coordinator -keyout key.pem -out cert.pem \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ),
    );
}

fn openssl(folder: &Path, args: &str) {
    let mut command = Command::new(tool("openssl"));
    let out = command.current_dir(folder).args(args.split_whitespace());
    let out = out.output().expect("openssl runs");
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args}: {why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_client_trusts_the_authority_it_is_told_of() {
    let coordinator = Secured::start();
    let key = Key::host("example.com").expect("a host");
    let limiter = coordinator.limiter(Some(coordinator.path("ca.pem")));
    limiter.ping().await.expect("it listens");
    let permit = limiter.acquire(&key).await.expect("a permit");
    permit.report(&Report::of(Signal::Ok));
    assert!(limiter.flush(PATIENCE).await);
    assert_eq!(limiter.last_error(), None);
    assert_eq!(limiter.rate(&key), Some(1000.0));

    let stranger = coordinator.limiter(None);
    let _ = stranger.ping().await;
    let trouble = stranger.last_error().unwrap_or_default();
    assert!(trouble.contains("certificate"), "{trouble}");
    assert!(trouble.contains("SSL_CERT_FILE"), "{trouble}");

    let spoken = Limiter::builder().coordinator(coordinator.url.replace("https", "http"));
    let spoken = spoken.build().expect("a limiter");
    let _ = spoken.ping().await;
    let trouble = spoken.last_error().unwrap_or_default();
    assert!(trouble.contains("say https://"), "{trouble}");

    let builder = Limiter::builder().coordinator(&coordinator.url);
    let wrong = builder.ca(coordinator.path("nothing.pem")).build();
    let why = wrong.expect_err("there is no such file").to_string();
    assert!(why.contains("nothing.pem"), "{why}");
}

/// A coordinator is a page behind TLS that wants a token.
#[test]
fn fetch_trusts_the_authority_of_a_file_and_every_certificate_if_it_is_told_to() {
    let coordinator = Secured::start();
    let fetch = |flags: &[&str]| {
        let mut command = politely();
        command.args(["fetch", "--no-robots", "--retries", "0", "--bearer-file"]);
        command.arg(coordinator.path("token")).args(flags);
        run(command.arg(format!("{}/api/v1/stats", coordinator.url)))
    };
    let ca = coordinator.path("ca.pem").display().to_string();
    let said = fetch(&["--ca", &ca]);
    assert_eq!(said.code, 0, "{}", said.err);
    let said = fetch(&["--insecure"]);
    assert_eq!(
        (said.code, said.lines("warning: --insecure").len()),
        (0, 1),
        "{}",
        said.err
    );
    let said = fetch(&[]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(!said.lines("certificate").is_empty(), "{}", said.err);
    for (file, why) in [
        ("nothing.pem", "nothing.pem"),
        ("token", "no certificate in it"),
    ] {
        let file = coordinator.path(file).display().to_string();
        let said = fetch(&["--ca", &file]);
        said.demand_one_line(2);
        assert!(
            said.err.contains("--ca ") && said.err.contains(why),
            "{}",
            said.err
        );
    }
}

#[test]
fn fetch_trusts_the_authority_in_its_environment() {
    let coordinator = Secured::start();
    let pages = Pages::bad();
    let said = run(politely()
        .args(["fetch", "--no-robots", "--coordinator", &coordinator.url])
        .arg("--token-file")
        .arg(coordinator.path("token"))
        .args((0..3).map(|page| pages.url(&format!("page/{page}"))))
        .env("SSL_CERT_FILE", coordinator.path("ca.pem")));
    assert_eq!(said.code, 0, "{}", said.err);
    let rows = said.rows();
    assert_eq!(rows.len(), 3, "{}", said.err);
    assert!(rows.iter().all(|row| row["status"] == 200), "{rows:?}");
}
