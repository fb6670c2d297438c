//! Tests of `PostgreSQL`: the suite over one server, and faults of the server.

#![expect(
    clippy::disallowed_methods,
    reason = "real servers come back in real time"
)]

use std::sync::Arc;
use std::time::Duration;

use politely::cells::postgres::Postgres;
use politely::cells::{Engine, EngineError, Notice, Severity, Write, Written};

use super::suite::{self, Told, listening};
use super::{Running, read, set, value, write};
use politely_testkit::postgres::PostgresServer;

impl Running for PostgresServer {
    fn client(&self) -> Arc<dyn Engine> {
        client(&self.url())
    }

    fn empty(&self) {
        self.order("TRUNCATE politely_cells");
    }
}

suite::engines! {
    one_server: once PostgresServer::start(""),
}

/// Longest wait for an event that takes an unknown time, such as a restart.
const PATIENCE: Duration = Duration::from_mins(1);

fn client(url: &str) -> Arc<dyn Engine> {
    Arc::new(Postgres::connect(url).expect("a URL"))
}

/// Returns the first success of the call. Calls fail while the server restarts.
async fn settled<T>(mut call: impl AsyncFnMut() -> Result<T, EngineError>) -> T {
    let calls = async {
        loop {
            // The caller of an engine drops a call after one second.
            if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(1), call()).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let settled = tokio::time::timeout(PATIENCE, calls).await;
    settled.expect("the server comes back")
}

/// Waits for the next notice.
async fn heard(told: &mut Told) -> Notice {
    let notice = tokio::time::timeout(PATIENCE, told.notices.recv()).await;
    notice
        .expect("a notice comes")
        .expect("the client is there")
}

async fn run(engine: &dyn Engine) -> Result<u64, EngineError> {
    Ok(engine.heartbeat("epoch".into()).await?.run)
}

fn loud(expected: u8, version: u8) -> Write {
    Write {
        notify: true,
        ..write("cell", Some(expected), value(version, b""))
    }
}

#[tokio::test]
async fn a_killed_server_keeps_what_it_confirmed_and_begins_another_run() {
    let mut server = PostgresServer::start("");
    let writer = client(&server.url());
    let (watcher, mut told) = listening(client(&server.url()));
    let made = set(&*writer, write("cell", None, value(1, b""))).await;
    assert_eq!(made, Ok(Written::Done));
    let before = run(&*writer).await.expect("a heartbeat");
    assert_eq!(watcher.watch(vec!["cell".into()], vec![]).await, Ok(()));
    let now = Notice::Written {
        cell: "cell".to_owned(),
        value: value(1, b""),
    };
    assert_eq!(heard(&mut told).await, now);

    server.kill();
    assert_eq!(heard(&mut told).await, Notice::Unheard { cell: None });
    let error = settled(async || Ok(read(&*writer, "cell").await.err())).await;
    let error = error.expect("the server is away").0;
    assert!(error.contains(&server.address.to_string()), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");

    server.start_again();
    let kept = settled(async || read(&*writer, "cell").await).await;
    assert_eq!(kept, Some(value(1, b"")));
    assert_ne!(settled(async || run(&*writer).await).await, before);
    settled(async || watcher.watch(vec!["cell".into()], vec![]).await).await;
    assert_eq!(heard(&mut told).await, now);
    let changed = set(&*writer, loud(1, 2)).await;
    assert_eq!(changed, Ok(Written::Done));
    let changed = Notice::Written {
        cell: "cell".to_owned(),
        value: value(2, b""),
    };
    assert_eq!(heard(&mut told).await, changed);
}

/// An operator ends the connection in the middle of the work, as a proxy or a failover does.
#[tokio::test]
async fn a_connection_that_ends_is_made_again() {
    let server = PostgresServer::start("");
    let (engine, mut told) = listening(client(&server.url()));
    assert_eq!(engine.watch(vec!["cell".into()], vec![]).await, Ok(()));
    for version in 1..5 {
        let before = (version > 1).then_some(version - 1);
        let wanted = value(version, b"");
        let written = settled(async || set(&*engine, write("cell", before, wanted.clone())).await);
        let is_done = match &written.await {
            Written::Done => true,
            Written::Conflict(now) => *now == Some(wanted),
        };
        assert!(is_done, "version {version}");
        server.order("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'politely'");
        assert_eq!(heard(&mut told).await, Notice::Unheard { cell: None });
    }
}

#[tokio::test]
async fn every_refusal_is_one_clear_error() {
    let server = PostgresServer::start("");
    let engine = client(&server.url());
    // A write that the server refuses does not fail the others of its batch.
    let unkeepable = write(&"long".repeat(5_000), None, value(1, b""));
    let unkeepable = Write {
        cell: random_name(4_000).into(),
        ..unkeepable
    };
    let batch = vec![unkeepable, write("cell", None, value(1, b""))];
    let written = engine.compare_and_set(batch).await;
    let error = written[0].clone().expect_err("too long a name").0;
    assert!(error.contains("index row size"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(written[1], Ok(Written::Done));

    server.order("CREATE ROLE guest LOGIN");
    server.order(
        "CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on",
    );
    for (url, told) in [
        (
            server.url_of("guest"),
            "permission denied for table politely_cells",
        ),
        (
            server.url_of("stranger"),
            "role \"stranger\" does not exist",
        ),
        (server.url_of("reader:hidden"), "does not allow writes"),
        (
            format!("{}?sslmode=require", server.url()),
            "does not support TLS",
        ),
        (
            "postgres://ann:hidden@127.0.0.1:1/db".to_owned(),
            "127.0.0.1:1",
        ),
    ] {
        let error = read(&*client(&url), "cell").await.expect_err(&url).0;
        assert!(error.contains(told), "{url}: {error}");
        assert!(!error.contains("hidden"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Returns a name that does not become short by compression.
fn random_name(length: usize) -> String {
    let mut chance = politely::core::Rng::new(1);
    let letter = |_| char::from(b'a' + (chance.next_u64() % 26) as u8);
    (0..length).map(letter).collect()
}

#[tokio::test]
async fn tls_checks_who_the_server_is() {
    let server = PostgresServer::start("ssl = on");
    let required = format!("{}?sslmode=require", server.url());
    let trusting = client(&format!("{required}&sslrootcert={}", server.certificate()));
    assert_eq!(read(&*trusting, "cell").await, Ok(None));
    let is_secret = server.order("SELECT bool_or(ssl) FROM pg_stat_ssl");
    assert_eq!(is_secret, "t");
    let error = read(&*client(&required), "cell").await;
    let error = error.expect_err("an unknown authority").0;
    assert!(error.contains("certificate"), "{error}");
    // Without sslmode nothing is encrypted, as with redis://.
    assert_eq!(read(&*client(&server.url()), "cell").await, Ok(None));
}

#[tokio::test]
async fn settings_that_lose_commits_are_risks() {
    let server = PostgresServer::start("fsync = off");
    let risks = client(&server.url()).risks().await.expect("an answer");
    assert_eq!(risks.len(), 1, "{risks:?}");
    assert_eq!(risks[0].severity, Severity::Warning);
    assert!(risks[0].text.contains("fsync = off"), "{}", risks[0].text);
    let server = PostgresServer::start("fsync = on");
    let risks = client(&server.url()).risks().await;
    assert_eq!(risks, Ok(vec![]));
}

#[tokio::test]
async fn expired_cells_are_deleted_at_the_next_start() {
    let server = PostgresServer::start("");
    let engine = client(&server.url());
    let short = Write {
        keep: Duration::ZERO,
        ..write("short", None, value(1, b""))
    };
    let written = engine
        .compare_and_set(vec![short, write("long", None, value(1, b""))])
        .await;
    assert_eq!(written, vec![Ok(Written::Done); 2]);
    // More than are deleted at a time.
    let many = "INSERT INTO politely_cells SELECT 'many-' || n, 'value', now() FROM generate_series(1, 12000) n";
    server.order(many);
    let next = client(&server.url());
    let gone = async {
        let rows = "SELECT count(*) FROM politely_cells";
        while read(&*next, "short").await != Ok(None) || server.order(rows) != "1" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("it is deleted");
    assert_eq!(read(&*next, "long").await, Ok(Some(value(1, b""))));
}

#[tokio::test]
async fn a_dropped_engine_closes_its_connection() {
    let server = PostgresServer::start("");
    let (engine, _told) = listening(client(&server.url()));
    assert_eq!(engine.watch(vec!["cell".into()], vec![]).await, Ok(()));
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'politely'";
    assert_eq!(server.order(count), "1");
    drop(engine);
    let ended = async {
        while server.order(count) != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("it closes");
}
