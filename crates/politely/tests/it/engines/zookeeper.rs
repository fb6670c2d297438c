//! Tests of `ZooKeeper`: the suite over an ensemble of three servers, and faults of the servers.

#![expect(
    clippy::disallowed_methods,
    reason = "real servers come back in real time"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politely::cells::zookeeper::ZooKeeper;
use politely::cells::{Engine, EngineError, Notice, Version, Write, Written};

use super::suite::{self, Told, listening};
use super::{Running, read, set, value, write};
use politely_testkit::zookeeper::Ensemble;

/// An ensemble, and the number of the chroot that clients use. A new chroot has no cells.
struct Chroots {
    ensemble: Ensemble,
    number: AtomicUsize,
    /// The part of the URL between its scheme and the servers.
    login: &'static str,
}

impl Running for Chroots {
    fn client(&self) -> Arc<dyn Engine> {
        let chroot = format!("/suite/{}", self.number.load(Ordering::Relaxed));
        let url = self.ensemble.url_for_large_cells(&chroot);
        client(&url.replace("://", &format!("://{}", self.login)))
    }

    fn empty(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
    }
}

fn chroots(login: &'static str) -> Chroots {
    Chroots {
        ensemble: Ensemble::start(),
        number: AtomicUsize::default(),
        login,
    }
}

suite::engines! {
    three_servers: once chroots(""),
    with_a_login: once chroots("ann:p%40ss@"),
}

/// Longest wait for an event that takes an unknown time, such as an election or a restart.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns a new client.
fn client(url: &str) -> Arc<dyn Engine> {
    Arc::new(ZooKeeper::connect(url).expect("a URL"))
}

/// Returns the first success of the call. Calls fail while servers restart.
async fn settled<T>(mut call: impl AsyncFnMut() -> Result<T, EngineError>) -> T {
    let mut failed = EngineError(String::new());
    let calls = async {
        loop {
            // The caller of an engine drops a call after one second.
            match tokio::time::timeout(Duration::from_secs(1), call()).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(why)) => failed = why,
                Err(_) => failed = EngineError("no answer in time".to_owned()),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let settled = tokio::time::timeout(PATIENCE, calls).await;
    settled.unwrap_or_else(|_| panic!("{failed}"))
}

async fn run(engine: &dyn Engine) -> Result<u64, EngineError> {
    Ok(engine.heartbeat("epoch".into()).await?.run)
}

/// Changes the cell until the watcher receives a notice. The watcher watches again when its watch
/// has ended.
async fn heard_again(engine: &dyn Engine, told: &mut Told, cell: &str) {
    let hearing = async {
        for version in 1_u64.. {
            let now = settled(async || read(engine, cell).await).await;
            let write = Write {
                expected: now.as_deref().and_then(Version::of),
                value: [&version.to_le_bytes()[..], b"8 bytes more"].concat(),
                notify: true,
                ..write(cell, None, Vec::new())
            };
            // The write fails while servers restart.
            let _ = tokio::time::timeout(PATIENCE / 30, set(engine, write)).await;
            let soon = tokio::time::timeout(Duration::from_millis(50), told.notices.recv()).await;
            match soon {
                Ok(Some(Notice::Written { cell: heard, .. })) => {
                    assert_eq!(heard, cell);
                    return;
                }
                Ok(Some(Notice::Unheard { .. })) => told.unheard = true,
                _ => {}
            }
            if told.unheard {
                told.unheard = engine.watch(vec![cell.into()], vec![]).await.is_err();
            }
        }
    };
    let heard = tokio::time::timeout(PATIENCE, hearing).await;
    heard.expect("the watcher hears again");
}

/// Changes a cell from version `before` to `after`, until the engine confirms it. A call that
/// failed may have been carried out.
async fn change(engine: &dyn Engine, before: Option<u8>, after: u8) {
    let wanted = value(after, b"");
    let written = settled(async || set(engine, write("cell", before, wanted.clone())).await).await;
    let is_done = match &written {
        Written::Done => true,
        Written::Conflict(now) => *now == Some(wanted),
    };
    assert!(is_done, "{written:?}");
}

#[tokio::test]
async fn an_ensemble_loses_nothing_that_it_confirmed() {
    let mut ensemble = Ensemble::start();
    let (engine, mut told) = listening(client(&ensemble.url("/politely")));
    assert_eq!(engine.watch(vec!["cell".into()], vec![]).await, Ok(()));
    change(&*engine, None, 1).await;
    let before = run(&*engine).await.expect("a heartbeat");

    // The leader is killed. The other two elect one of them, which has the cell.
    let leader = ensemble.leader();
    ensemble.members[leader].kill();
    ensemble.wait_for_members(2);
    let kept = settled(async || read(&*engine, "cell").await).await;
    assert_eq!(kept, Some(value(1, b"")));
    assert_eq!(settled(async || run(&*engine).await).await, before);
    change(&*engine, Some(1), 2).await;
    heard_again(&*engine, &mut told, "cell").await;

    // Without a quorum no call succeeds, and each call ends by itself.
    let last = ensemble.leader();
    ensemble.members[last].kill();
    let (mut error, mut failures) = (String::new(), 0);
    while failures < 5 {
        let reading = read(&*engine, "cell");
        match tokio::time::timeout(PATIENCE / 2, reading)
            .await
            .expect("a call ends by itself")
        {
            Ok(_) => failures = 0,
            Err(why) => (error, failures) = (why.0, failures + 1),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains(&ensemble.members[0].address.to_string()),
        "{error}"
    );
    // A client that starts now is told what is missing.
    let late = client(&ensemble.url("/politely"));
    let error = read(&*late, "cell").await.expect_err("no quorum").0;
    assert!(error.contains("no server accepts a session"), "{error}");

    // All servers return with their data.
    for number in [leader, last] {
        ensemble.members[number].start_again();
    }
    ensemble.wait_for_members(3);
    let now = settled(async || read(&*engine, "cell").await).await;
    assert!(now.is_some());
    assert_eq!(settled(async || run(&*engine).await).await, before);
    heard_again(&*engine, &mut told, "cell").await;
    let found = settled(async || read(&*late, "cell").await).await;
    assert!(found.is_some());
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left() {
    let ensemble = Ensemble::start();
    let (engine, mut told) = listening(client(&ensemble.url("")));
    assert_eq!(engine.watch(vec!["cell".into()], vec![]).await, Ok(()));
    change(&*engine, None, 1).await;
    // The leader stands still. The client may be connected to it or to a follower.
    let leader = ensemble.leader();
    ensemble.members[leader].freeze();
    let kept = settled(async || read(&*engine, "cell").await).await;
    assert_eq!(kept, Some(value(1, b"")));
    change(&*engine, Some(1), 2).await;
    heard_again(&*engine, &mut told, "cell").await;
    ensemble.members[leader].thaw();
    ensemble.wait_for_members(3);
    settled(async || read(&*engine, "cell").await).await;
}

#[tokio::test]
async fn every_refusal_is_one_clear_error() {
    let ensemble = Ensemble::start();
    let ann = client(&ensemble.url("/ann").replace("://", "://ann:secret@"));
    change(&*ann, None, 1).await;
    // Another user, and a client without a login, cannot use the znodes of ann.
    for login in ["bob:secret@", "ann:wrong@", ""] {
        let other = client(&ensemble.url("/ann").replace("://", &format!("://{login}")));
        let error = read(&*other, "cell").await.expect_err(login).0;
        assert!(
            error.contains("/ann") && error.contains("not authorized"),
            "{error}"
        );
        assert!(error.contains("log in as the user"), "{error}");
        assert!(
            !error.contains("secret") && !error.contains("wrong"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    // A cell above the limit is refused, and the other writes of the call are not.
    let too_large = write("large", None, value(1, &vec![7; 1 << 20]));
    let written = ann
        .compare_and_set(vec![too_large, write("small", None, value(1, b""))])
        .await;
    let error = written[0].clone().expect_err("too large").0;
    assert!(
        error.contains("\"large\"") && error.contains("jute.maxbuffer"),
        "{error}"
    );
    assert_eq!(written[1], Ok(Written::Done));
    // A client without a server is told so.
    let nobody = client("zookeeper://127.0.0.1:1");
    let error = read(&*nobody, "cell").await.expect_err("no server").0;
    assert!(
        error.contains("127.0.0.1:1: no server accepts a session"),
        "{error}"
    );
}

#[tokio::test]
async fn a_znode_starts_again_before_its_version_overflows() {
    let ensemble = Ensemble::start();
    let url = ensemble.url("/renew");
    let engine: Arc<dyn Engine> = Arc::new(ZooKeeper::connect(&url).expect("a URL").renew_at(3));
    let (other, mut told) = listening(client(&url));
    assert_eq!(other.watch(vec!["cell".into()], vec![]).await, Ok(()));
    change(&*engine, None, 1).await;
    for version in 1..20 {
        change(&*engine, Some(version), version + 1).await;
    }
    // A writer that knows an older version loses.
    let late = set(&*other, write("cell", Some(19), value(99, b""))).await;
    assert_eq!(late, Ok(Written::Conflict(Some(value(20, b"")))));
    heard_again(&*other, &mut told, "cell").await;
}

/// A client counts as a member until it is dropped.
#[tokio::test]
async fn a_dropped_engine_ends_its_session() {
    let ensemble = Ensemble::start();
    let (engine, _told) = listening(client(&ensemble.url("")));
    assert_eq!(engine.watch(vec!["cell".into()], vec![]).await, Ok(()));
    let sessions = |ensemble: &Ensemble| {
        let answers = ensemble
            .members
            .iter()
            .filter_map(|member| member.ask("cons"));
        answers
            .map(|answer| answer.matches("sid=").count())
            .sum::<usize>()
    };
    assert_eq!(sessions(&ensemble), 1);
    drop(engine);
    let ended = async {
        while sessions(&ensemble) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("the session ends");
}
