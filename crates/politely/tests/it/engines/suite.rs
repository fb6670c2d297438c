//! The same tests for every engine.

use std::sync::Arc;
use std::time::Duration;

use politely::cells::{Engine, Notice, OnNotice, Version, Write, Written};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Running, read, set, value, write};

/// Longest wait for an event that must come. After it, the event counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Generates the tests of each engine. With `each`, every test starts an engine of its own. With
/// `once`, all tests share one engine, which is emptied after each test; this is for engines that
/// take seconds to start.
macro_rules! engines {
    ($($name:ident: $how:ident $start:expr,)*) => { $(
        mod $name {
            #[allow(unused_imports, reason = "not every engine needs what its neighbours need")]
            use super::*;

            $crate::engines::suite::engines!(@$how $start;
                a_cell_is_made_once_and_changed_by_who_knows_its_version
                what_has_no_version_is_nobodys_to_change
                who_knows_the_whole_value_says_so
                of_those_who_write_at_once_exactly_one_wins
                a_value_may_have_all_bytes
                a_thousand_cells_are_one_call
                no_cells_are_a_call_too
                who_watches_is_told_and_nobody_else
                time_goes_on_and_the_run_stays
            );
        }
    )* };
    (@each $start:expr; $($test:ident)*) => { $(
        #[tokio::test]
        async fn $test() {
            $crate::engines::suite::$test(&$start).await;
        }
    )* };
    (@once $start:expr; $($test:ident)*) => {
        #[tokio::test]
        async fn does_all_that_engines_do() {
            let running = $start;
            $(
                eprintln!("{}", stringify!($test));
                $crate::engines::suite::$test(&running).await;
                running.empty();
            )*
        }
    };
}
pub(crate) use engines;

pub(crate) async fn a_cell_is_made_once_and_changed_by_who_knows_its_version(
    running: &impl Running,
) {
    let (ann, bob) = (running.client(), running.client());
    let (one, two) = (value(1, b"one"), value(2, b"two"));
    assert_eq!(read(&*ann, "cell").await, Ok(None));
    let too_early = set(&*ann, write("cell", Some(9), one.clone())).await;
    assert_eq!(too_early, Ok(Written::Conflict(None)));
    let made = set(&*ann, write("cell", None, one.clone())).await;
    assert_eq!(made, Ok(Written::Done));
    let again = set(&*bob, write("cell", None, two.clone())).await;
    assert_eq!(again, Ok(Written::Conflict(Some(one.clone()))));
    let wrong = set(&*bob, write("cell", Some(2), two.clone())).await;
    assert_eq!(wrong, Ok(Written::Conflict(Some(one.clone()))));
    assert_eq!(read(&*ann, "cell").await, Ok(Some(one)));
    let changed = set(&*bob, write("cell", Some(1), two.clone())).await;
    assert_eq!(changed, Ok(Written::Done));
    assert_eq!(read(&*ann, "cell").await, Ok(Some(two)));
}

/// Regression: a writer that created a cell over a shorter foreign value took the refusal for a
/// success.
pub(crate) async fn what_has_no_version_is_nobodys_to_change(running: &impl Running) {
    let client = running.client();
    let junk = b"junk".to_vec();
    assert_eq!(
        set(&*client, write("short", None, junk.clone())).await,
        Ok(Written::Done)
    );
    for expected in [None, Some(1)] {
        let refused = set(&*client, write("short", expected, value(1, b"one"))).await;
        assert_eq!(refused, Ok(Written::Conflict(Some(junk.clone()))));
    }
    assert_eq!(read(&*client, "short").await, Ok(Some(junk)));
}

pub(crate) async fn who_knows_the_whole_value_says_so(running: &impl Running) {
    let client = running.client();
    let [one, two, three] = [1, 2, 3].map(|version| value(version, b"\0 whole \r\n"));
    let knowing = |before: &[u8], now: &[u8]| Write {
        before: Some(before.into()),
        ..write("cell", Some(before[0]), now.to_vec())
    };
    let gone = set(&*client, knowing(&one, &two)).await;
    assert_eq!(gone, Ok(Written::Conflict(None)));
    let made = set(&*client, write("cell", None, one.clone())).await;
    assert_eq!(made, Ok(Written::Done));
    let changed = set(&*client, knowing(&one, &two)).await;
    assert_eq!(changed, Ok(Written::Done));
    let late = set(&*client, knowing(&one, &three)).await;
    assert_eq!(late, Ok(Written::Conflict(Some(two.clone()))));
    let unknowing = set(&*client, write("cell", Some(2), three.clone())).await;
    assert_eq!(unknowing, Ok(Written::Done));
    let loud = Write {
        notify: true,
        ..knowing(&three, &one)
    };
    assert_eq!(set(&*client, loud).await, Ok(Written::Done));
    assert_eq!(read(&*client, "cell").await, Ok(Some(one)));
}

pub(crate) async fn of_those_who_write_at_once_exactly_one_wins(running: &impl Running) {
    const ROUNDS: u8 = 20;
    let clients: Vec<_> = (0..4).map(|_| running.client()).collect();
    for round in 0..ROUNDS {
        let expected = (round > 0).then_some(round);
        let writing = clients.iter().cloned().enumerate().map(|(i, client)| {
            let about = format!("by {i}").into_bytes();
            tokio::spawn(async move {
                let mine = value(round + 1, &about);
                (
                    set(&*client, write("cell", expected, mine.clone())).await,
                    mine,
                )
            })
        });
        let writing: Vec<_> = writing.collect();
        let (mut won, mut seen) = (Vec::new(), Vec::new());
        for one in writing {
            match one.await.expect("a writer") {
                (Ok(Written::Done), mine) => won.push(mine),
                (Ok(Written::Conflict(now)), _) => seen.push(now.expect("somebody's")),
                (Err(why), _) => panic!("{why}"),
            }
        }
        assert_eq!(won.len(), 1, "in round {round}");
        assert!(
            seen.iter().all(|now| *now == won[0]),
            "who lost sees who won"
        );
        assert_eq!(read(&*clients[0], "cell").await, Ok(won.pop()));
    }
}

pub(crate) async fn a_value_may_have_all_bytes(running: &impl Running) {
    let client = running.client();
    let all: Vec<u8> = (0..=255).collect();
    let version = Version(*b"\r\n\0\xff$-1*3 {}\"'\\\x80");
    let first = [&version.0, &all[..]].concat();
    let made = set(&*client, write("cell {}\r\n", None, first.clone())).await;
    assert_eq!(made, Ok(Written::Done));
    assert_eq!(read(&*client, "cell {}\r\n").await, Ok(Some(first.clone())));
    let mut next = write("cell {}\r\n", None, value(0, &[]));
    let refused = set(&*client, next.clone()).await;
    assert_eq!(refused, Ok(Written::Conflict(Some(first))));
    next.expected = Some(version);
    assert_eq!(set(&*client, next).await, Ok(Written::Done));
    let no_more_than_a_version = Ok(Some(value(0, &[])));
    assert_eq!(read(&*client, "cell {}\r\n").await, no_more_than_a_version);
    let whole_megabyte = value(1, &all.repeat(4096));
    let grown = set(
        &*client,
        write("cell {}\r\n", Some(0), whole_megabyte.clone()),
    )
    .await;
    assert_eq!(grown, Ok(Written::Done));
    assert_eq!(
        read(&*client, "cell {}\r\n").await,
        Ok(Some(whole_megabyte))
    );
}

pub(crate) async fn a_thousand_cells_are_one_call(running: &impl Running) {
    let client = running.client();
    let cells: Vec<Arc<str>> = (0..1000).map(|i| format!("cell-{i}").into()).collect();
    let of = |i: usize, version| write(&cells[i], None, value(version, cells[i].as_bytes()));
    let even = (0..1000).step_by(2).map(|i| of(i, 1)).collect();
    let made = client.compare_and_set(even).await;
    assert_eq!(made, vec![Ok(Written::Done); 500]);
    let found = client.read(cells.clone()).await;
    for (i, found) in found.into_iter().enumerate() {
        let there = (i % 2 == 0).then(|| of(i, 1).value);
        assert_eq!(found, Ok(there), "{i}");
    }
    let all = client
        .compare_and_set((0..1000).map(|i| of(i, 2)).collect())
        .await;
    for (i, written) in all.into_iter().enumerate() {
        let expected = if i % 2 == 0 {
            Written::Conflict(Some(of(i, 1).value))
        } else {
            Written::Done
        };
        assert_eq!(written, Ok(expected), "{i}");
    }
}

pub(crate) async fn no_cells_are_a_call_too(running: &impl Running) {
    let client = running.client();
    assert!(client.read(Vec::new()).await.is_empty());
    assert!(client.compare_and_set(Vec::new()).await.is_empty());
    assert_eq!(client.watch(Vec::new(), Vec::new()).await, Ok(()));
}

pub(crate) async fn who_watches_is_told_and_nobody_else(running: &impl Running) {
    let writer = running.client();
    let (watcher, mut told) = listening(running.client());
    let (deaf, mut told_deaf) = listening(running.client());
    for (watcher, more, less) in [
        (&watcher, &["a", "b", "c"][..], &[][..]),
        (&watcher, &[], &["c"]),
        (&deaf, &["other"], &[]),
    ] {
        let [more, less] = [more, less].map(|cells| cells.iter().map(|cell| (*cell).into()));
        assert_eq!(watcher.watch(more.collect(), less.collect()).await, Ok(()));
    }
    let loud = |cell, expected, version| Write {
        notify: true,
        ..write(cell, expected, value(version, b"\0loud\r\n"))
    };
    let silent = write("b", None, value(1, b"silent"));
    // The write to "b" with a notice comes last. Once its notice has arrived, all earlier notices
    // would have arrived too.
    for write in [
        silent,
        loud("a", None, 1),
        loud("a", None, 2), // This write is a conflict.
        loud("c", None, 1),
        loud("d", None, 1),
        loud("b", Some(1), 2),
    ] {
        set(&*writer, write).await.expect("an answer");
    }
    let loud = |version| value(version, b"\0loud\r\n");
    let mut heard = vec![next(&mut told).await, next(&mut told).await];
    heard.sort(); // Notices of different cells may come in any order.
    assert_eq!(
        heard,
        [("a".to_owned(), loud(1)), ("b".to_owned(), loud(2))]
    );
    // At most, a notice may follow that "c" is no longer watched.
    for told in [&mut told, &mut told_deaf] {
        while let Ok(notice) = told.notices.try_recv() {
            let cell = Some("c".to_owned());
            assert_eq!(notice, Notice::Unheard { cell });
        }
    }
}

pub(crate) async fn time_goes_on_and_the_run_stays(running: &impl Running) {
    let (ann, bob) = (running.client(), running.client());
    let one = ann.heartbeat("epoch".into()).await.expect("a heartbeat");
    assert_eq!(one.epoch, None);
    let epoch = value(7, b"epoch");
    set(&*bob, write("epoch", None, epoch.clone()))
        .await
        .expect("an answer");
    let two = bob.heartbeat("epoch".into()).await.expect("a heartbeat");
    assert_eq!((two.run, two.epoch), (one.run, Some(epoch)));
    assert!(two.time >= one.time);
}

/// The notices that a client receives.
pub(crate) struct Told {
    pub(crate) notices: mpsc::UnboundedReceiver<Notice>,
    /// Whether the client must watch again, because the watch failed or ended.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "memory always tells")
    )]
    pub(crate) unheard: bool,
}

/// Returns a client and the notices that it receives.
pub(crate) fn listening(client: Arc<dyn Engine>) -> (Arc<dyn Engine>, Told) {
    let (sender, notices) = mpsc::unbounded_channel();
    let hear: OnNotice = Arc::new(move |notice| {
        // The receiver may be dropped already.
        let _ = sender.send(notice);
    });
    client.listen(hear);
    let unheard = false;
    (client, Told { notices, unheard })
}

/// Returns the next notice.
async fn next(told: &mut Told) -> (String, Vec<u8>) {
    loop {
        let notice = timeout(PATIENCE, told.notices.recv()).await;
        let notice = notice.expect("a notice comes");
        if let Notice::Written { cell, value } = notice.expect("the client is there") {
            return (cell, value);
        }
    }
}
