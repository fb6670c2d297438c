//! Tests of a disk that refuses writes, and of one that is slow.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};
use redb::{StorageBackend, backends::FileBackend};

use super::kill::{child, folder, say};
use super::*;

/// A file whose writes fail and whose fsyncs wait, on demand.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    moods: Arc<Moods>,
}

#[derive(Debug, Default)]
pub(crate) struct Moods {
    pub(crate) full: AtomicBool,
    /// While set, writes panic.
    broken: AtomicBool,
    /// Whether fsyncs wait, and how many wait now.
    slow: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Moods {
    pub(super) fn set_slow(&self, slow: bool) {
        self.slow.lock().0 = slow;
        self.changed.notify_all();
    }

    /// Waits until an fsync waits for the disk.
    pub(super) fn wait_until_stuck(&self) {
        let mut slow = self.slow.lock();
        self.changed.wait_while(&mut slow, |slow| slow.1 == 0);
    }
}

impl Disk {
    fn refuse_if_full(&self) -> io::Result<()> {
        if self.moods.full.load(SeqCst) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no room"));
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        let mut slow = self.moods.slow.lock();
        slow.1 += 1;
        self.moods.changed.notify_all();
        self.moods.changed.wait_while(&mut slow, |slow| slow.0);
        slow.1 -= 1;
        self.refuse_if_full()?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.refuse_if_full()?;
        assert!(!self.moods.broken.load(SeqCst), "a test breaks the disk");
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Returns a store on such a disk.
pub(crate) fn store(dir: &Path) -> (Store, Arc<Moods>) {
    let moods = Arc::<Moods>::default();
    let path = dir.join("politely.redb");
    let opener = {
        let moods = moods.clone();
        move |_| {
            let mut options = fs::OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = FileBackend::new(options.open(&path)?)?;
            let moods = moods.clone();
            redb::Database::builder().create_with_backend(Disk { file, moods })
        }
    };
    let (tables, _) = Tables::open_with(dir, Box::new(opener)).unwrap();
    let counts = Arc::new(Counts::default());
    let (journal, _) = Journal::open(dir, JOURNAL_BYTES_MAX, Durability::Kill, &counts).unwrap();
    let (tables, journal) = (Arc::new(tables), Arc::new(journal));
    let ends = (tables.clone(), journal.clone(), counts.clone());
    let store = Store {
        folder: dir.to_owned(),
        boot: 1,
        committer: Committer::start(ends, REPLACE_EVERY).unwrap(),
        tables,
        journal,
        counts,
    };
    (store, moods)
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    store.keep_now(vec![("a".into(), state(1))]).await.unwrap();
    moods.full.store(true, SeqCst);
    store.learned([("b".to_owned(), state(1))]);
    for number in 2..5 {
        let kept = store.keep_now(vec![("a".into(), state(number))]).await;
        let said = kept.unwrap_err().to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(store.keep_config(b"x".to_vec(), 1).await.is_err());
    assert!(store.counters().failures >= 4);
    moods.full.store(false, SeqCst);
    // The file is opened again, and the refused states are written again.
    store.keep_now(vec![("c".into(), state(1))]).await.unwrap();
    store.close();
    let expected = [("a", 4), ("b", 1), ("c", 1)].map(|(key, state)| (key.to_owned(), state));
    assert_eq!(states(&store), expected.into());
    drop(store);
    let config = Store::open(dir.path()).unwrap().1.config;
    assert_eq!(config, Some(b"x".to_vec()));
}

#[tokio::test]
async fn trouble_lasts_as_long_as_the_disk_refuses() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    assert_eq!(store.last_error(), None);
    moods.full.store(true, SeqCst);
    let kept = store.keep_now(vec![("a".into(), state(1))]).await;
    assert!(kept.is_err());
    let why = store.last_error().unwrap();
    assert!(
        why.contains("politely.redb") && why.contains("no room"),
        "{why}"
    );
    assert!(store.is_failing());
    moods.full.store(false, SeqCst);
    // The store repeats the write without a call.
    while store.last_error().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!store.is_failing());
}

#[tokio::test]
async fn a_panic_of_the_database_is_an_error_of_one_write() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    store.keep_now(vec![("a".into(), state(1))]).await.unwrap();
    moods.broken.store(true, SeqCst);
    let kept = store.keep_now(vec![("a".into(), state(2))]).await;
    let said = kept.unwrap_err().to_string();
    assert!(said.contains("a test breaks the disk"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert!(store.last_error().is_some());
    moods.broken.store(false, SeqCst);
    store.keep_now(vec![("a".into(), state(3))]).await.unwrap();
    assert_eq!(store.last_error(), None);
    assert_eq!(states(&store), [("a".to_owned(), 3)].into());
}

#[tokio::test]
async fn a_dead_thread_is_trouble_for_good() {
    let dir = tempdir().unwrap();
    let (store, _) = store(dir.path());
    store.kill_thread();
    let why = store.last_error().unwrap();
    assert!(why.contains("restart the coordinator"), "{why}");
    let kept = store.keep_now(vec![("a".into(), state(1))]).await;
    assert!(matches!(kept, Err(KeepError::Closed)));
    assert!(store.is_journal_failing());
    store.close();
    assert!(
        store.is_failing(),
        "the exit code says that not all is kept"
    );
}

#[tokio::test]
async fn what_failed_does_not_come_back_over_what_is_newer() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    moods.set_slow(true);
    let failing = store.keep_now(vec![("a".into(), state(1)), ("b".into(), state(1))]);
    moods.wait_until_stuck();
    store.learned([("a".to_owned(), state(2))]);
    let newer = store.keep_now(vec![("b".into(), state(2))]);
    moods.full.store(true, SeqCst);
    moods.set_slow(false);
    failing.await.unwrap_err();
    // The state may have been written again before or after the disk had room.
    moods.full.store(false, SeqCst);
    drop(newer);
    store.close();
    let expected = [("a".to_owned(), 2), ("b".to_owned(), 2)];
    assert_eq!(states(&store), expected.into());
}

#[tokio::test]
async fn a_hold_among_many_learned_states_is_not_undone_by_an_older_one() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    moods.set_slow(true);
    store.learned((0..10_000).map(|i| (format!("host-{i:05}"), state(1))));
    moods.wait_until_stuck();
    // The first transaction is running, and the older state of this key waits for the third.
    let held = store.keep_now(vec![("host-09999".into(), state(2))]);
    moods.set_slow(false);
    held.await.unwrap();
    store.close();
    let states = states(&store);
    assert_eq!((states.len(), states["host-09999"]), (10_000, 2));
}

#[tokio::test]
async fn all_that_arrives_during_a_transaction_shares_the_next() {
    let dir = tempdir().unwrap();
    let (store, moods) = store(dir.path());
    moods.set_slow(true);
    let first = store.keep_now(vec![("first".into(), state(0))]);
    moods.wait_until_stuck();
    let more: Vec<_> = (0..100)
        .map(|i| store.keep_now(vec![(format!("host-{}", i % 50), state(i))]))
        .collect();
    moods.set_slow(false);
    first.await.unwrap();
    for one in more {
        one.await.unwrap();
    }
    let counters = store.counters();
    assert_eq!((counters.commits, counters.states), (2, 51));
    assert_eq!(states(&store)["host-7"], 57);
}

#[test]
fn fills_its_disk() {
    let Some(dir) = folder() else { return };
    let (store, _) = Store::open(&dir).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let refused = |counters: Counters| counters.failures.min(counters.journal_failures) > 2;
    for number in 0..100_000 {
        let failures = store.counters().journal_failures;
        // The lengths differ, so that the end of the disk falls into the middle of some records.
        let key = "x".repeat(number as usize % 300);
        let _ = store.granted(&[permit(number, &key)], &[]);
        if store.counters().journal_failures == failures {
            say(&format!("granted {number}"));
        }
        let blob = vec![1; 50_000];
        if runtime.block_on(store.keep_config(blob, number)).is_err() && refused(store.counters()) {
            store.close();
            say("refused");
            return;
        }
        let key = format!("{number}-{}", "x".repeat(30_000));
        if runtime
            .block_on(store.keep_now(vec![(key, state(number))]))
            .is_ok()
        {
            say(&format!("held {number}"));
        }
    }
}

/// The shell's limit on the size of a file acts like a real disk that accepts half a write.
#[test]
fn a_disk_full_in_the_middle_of_a_write_loses_nothing_acknowledged() {
    let dir = tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let database = fs::metadata(dir.path().join("politely.redb"))
        .unwrap()
        .len();
    // The limit is a little above the length of the database, and the journal is filled almost up
    // to it. The shell counts blocks of 512 bytes.
    let limit = database + (1 << 20);
    let (journal, counts) = (dir.path(), Counts::default());
    let (journal, _) =
        Journal::open(journal, JOURNAL_BYTES_MAX, Durability::Kill, &counts).unwrap();
    let long = "x".repeat(30_000);
    while journal.size().0 + 100_000 < limit {
        journal.granted(&[permit(1 << 40, &long)], &[], &counts);
    }
    drop(journal);
    let shell = format!("trap '' XFSZ; ulimit -f {};", limit / 512);
    let (mut child, out) = child("store::tests::failing::fills_its_disk", dir.path(), &shell);
    let (mut granted, mut held, mut refused) = (Vec::new(), Vec::new(), false);
    for line in out.lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("granted", number)) => granted.push(number.parse::<u64>().unwrap()),
            Some(("held", number)) => held.push(number.parse::<u64>().unwrap()),
            _ => refused |= line == "refused",
        }
    }
    assert!(child.wait().unwrap().success() && refused);
    assert!(!granted.is_empty() && !held.is_empty());

    let (store, kept) = Store::open(dir.path()).unwrap();
    assert_eq!(kept.damaged, 0, "half a record was left");
    let mut live: Vec<_> = kept.live.iter().map(|one| one.permit).collect();
    live.sort_unstable();
    granted.push(1 << 40);
    assert_eq!(live, granted);
    let found: Vec<u64> = states(&store).into_values().collect();
    assert!(held.iter().all(|number| found.contains(number)));
}
