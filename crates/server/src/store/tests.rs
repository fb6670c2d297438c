use std::fs;

use tempfile::tempdir;

use super::*;

mod damage;
pub(crate) mod failing;
mod kill;
mod order;

impl Store {
    /// Returns the content of a new folder.
    pub(crate) fn kept_for_test(&self) -> Kept {
        Kept {
            boot: self.boot,
            config: None,
            live: Vec::new(),
            newest: HashMap::new(),
            spent: HashMap::new(),
            damaged: 0,
        }
    }

    /// Makes all later writes of the journal fail.
    pub(crate) fn fail_journal(&self) {
        self.journal.fail();
    }

    /// Blocks all writes of the journal until the result is dropped.
    pub(crate) fn block_journal(&self) -> impl Sized + use<'_> {
        self.journal.block()
    }

    /// Makes the thread that commits panic.
    pub(crate) fn kill_thread(&self) {
        self.committer.die();
    }
}

fn state(number: u64) -> Snapshot {
    Snapshot {
        version: number,
        state: number.to_le_bytes().to_vec(),
    }
}

fn states(store: &Store) -> BTreeMap<String, u64> {
    let mut states = BTreeMap::new();
    let each = |key: &str, state: &[u8]| {
        states.insert(
            key.to_owned(),
            u64::from_le_bytes(state.try_into().unwrap()),
        );
    };
    store.for_each_key(each).unwrap();
    states
}

fn permit(permit: u64, key: &str) -> Granted<'_> {
    Granted {
        permit,
        key: key.into(),
        start_us: permit * 10,
        lease_ms: 1_000,
        wish: 0,
        client: "worker".into(),
        others: Vec::new(),
        units: UnitCosts::NONE,
    }
}

#[tokio::test]
async fn all_is_there_after_a_restart() {
    let dir = tempdir().unwrap();
    let folder = dir.path().join("made/if/missing");
    let (store, kept) = Store::open(&folder).unwrap();
    assert_eq!((kept.boot, kept.config, kept.live.len()), (1, None, 0));
    store.keep_config(b"{}".to_vec(), 1).await.unwrap();
    store.keep_config(b"{1}".to_vec(), 2).await.unwrap();
    store
        .keep_now(vec![("held".into(), state(1))])
        .await
        .unwrap();
    store.learned([("learned".to_owned(), state(2))]);
    assert!(store.granted(&[permit(5, "held"), permit(6, "held")], &[]));
    store.gone(&[6]);
    store.close();
    store.close();
    assert!(matches!(
        store.keep_now(vec![("late".into(), state(1))]).await,
        Err(KeepError::Closed)
    ));
    store.learned([("late".to_owned(), state(1))]);
    let counters = store.counters();
    assert_eq!((counters.failures, counters.journal_failures), (0, 0));
    assert_eq!(counters.permits_live, 1);
    drop(store);

    let (store, kept) = Store::open(&folder).unwrap();
    assert_eq!((kept.boot, kept.config), (2, Some(b"{1}".to_vec())));
    assert_eq!(kept.live, [permit(5, "held")]);
    assert_eq!(kept.newest, HashMap::from([("held".to_owned(), 60)]));
    let expected = [("held".to_owned(), 1), ("learned".to_owned(), 2)];
    assert_eq!(states(&store), expected.into());
}

#[tokio::test]
async fn the_newest_state_counts_whichever_way_it_came() {
    let dir = tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let mut seen = 0;
    for number in 0..600 {
        let state = vec![("k".to_owned(), state(number))];
        match number % 5 {
            0 => {
                store.keep_now(state).await.unwrap();
                seen = states(&store)["k"];
                assert!(seen >= number, "{seen} after {number} was kept");
            }
            // The state is queued even if the future is dropped.
            1 | 2 => drop(store.keep_now(state)),
            _ => store.learned(state),
        }
        let now = states(&store)["k"];
        assert!(now >= seen, "{now} over {seen}");
        seen = now;
    }
    store.close();
    assert_eq!(states(&store)["k"], 599);
}

#[tokio::test]
async fn more_than_one_transaction_holds_is_written() {
    let dir = tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    store.learned((0..10_000).map(|i| (format!("host-{i}"), state(i))));
    store.close();
    assert_eq!(states(&store).len(), 10_000);
    let counters = store.counters();
    assert_eq!((counters.commits, counters.states), (3, 10_000));
}

#[test]
fn an_unusable_folder_is_told_in_one_line() {
    let dir = tempdir().unwrap();
    let error = |dir: &Path| {
        let said = Store::open(dir).err().expect("refused").to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    let in_use = Store::open(dir.path()).unwrap();
    let said = error(dir.path());
    assert!(
        said.contains("politely.redb: in use by another coordinator; "),
        "{said}"
    );
    drop(in_use);
    assert_eq!(Store::open(dir.path()).unwrap().1.boot, 2);

    let file = dir.path().join("a file");
    fs::write(&file, "").unwrap();
    error(&file);
    error(&file.join("below"));
    if cfg!(target_os = "linux") {
        // Even root cannot create files there.
        error(Path::new("/proc/politely"));
    }
    let other = tempdir().unwrap();
    fs::write(
        other.path().join("politely.redb"),
        "something else entirely",
    )
    .unwrap();
    assert!(error(other.path()).contains("not a state file"));
}

#[test]
fn other_formats_are_told_apart() {
    for (format, told) in [(1, "politely fetch"), (99_999, "another version")] {
        let dir = tempdir().unwrap();
        let path = dir.path().join("politely.redb");
        let database = redb::Database::create(&path).unwrap();
        let change = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        change
            .open_table(meta)
            .unwrap()
            .insert("format", format)
            .unwrap();
        change.commit().unwrap();
        drop(database);
        let said = Store::open(dir.path()).err().unwrap().to_string();
        assert!(said.contains(told), "{said}");
        assert!(!dir.path().join("permits.journal").exists());
    }
}
