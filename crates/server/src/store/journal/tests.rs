use std::collections::BTreeSet;
use std::thread;

use tempfile::tempdir;

use super::*;

const LARGE: u64 = u64::MAX / 4;

impl Journal {
    /// Makes all later writes fail, because the file is open for reading only.
    pub(in crate::store) fn fail(&self) {
        self.open.lock().file = Arc::new(File::open(&self.path).expect("it is there"));
    }

    /// Blocks all writes until the result is dropped.
    pub(in crate::store) fn block(&self) -> impl Sized + use<'_> {
        self.open.lock()
    }
}

fn permit(permit: u64) -> Granted<'static> {
    Granted {
        permit,
        key: format!("host-{}", permit % 3).into(),
        start_us: 1_000 + permit,
        lease_ms: 100,
        wish: permit / 2,
        client: "worker".into(),
        others: Vec::new(),
        units: UnitCosts::NONE,
    }
}

/// Opens a journal. Returns it with its counts and what was found in it.
fn open(dir: &Path, bytes_max: u64) -> (Journal, Counts, Found) {
    let counts = Counts::default();
    let (journal, found) = Journal::open(dir, bytes_max, Durability::Kill, &counts).unwrap();
    (journal, counts, found)
}

fn live(dir: &Path) -> Vec<Granted<'static>> {
    let mut live = open(dir, LARGE).2.into_live();
    live.sort_by_key(|granted| granted.permit);
    live
}

fn permits(numbers: impl IntoIterator<Item = u64>) -> Vec<Granted<'static>> {
    numbers.into_iter().map(permit).collect()
}

#[test]
fn what_is_out_is_out_after_a_restart_and_nothing_else() {
    let dir = tempdir().unwrap();
    let (journal, counts, found) = open(dir.path(), LARGE);
    assert!(found.live.is_empty() && found.newest.is_empty());
    assert!(journal.granted(&permits([1, 2]), &[], &counts));
    assert!(journal.granted(&permits([3, 4]), &[], &counts));
    journal.gone(&[2, 99], &counts);
    journal.renewed(&[(3, 5_000), (2, 7)], &counts);
    drop(journal);

    let (journal, counts, found) = open(dir.path(), LARGE);
    let newest = [("host-0", 1_003), ("host-1", 1_004), ("host-2", 1_002)];
    let newest = newest.map(|(key, start)| (key.to_owned(), start));
    assert_eq!(found.newest, newest.into_iter().collect());
    assert_eq!(found.damaged, 0);
    // A permit that an earlier run granted can be renewed and ended in this run.
    journal.renewed(&[(4, 6_000)], &counts);
    journal.gone(&[1], &counts);
    let (three, four) = (permit(3), permit(4));
    let renewed = [
        Granted {
            lease_ms: 5_000,
            ..three
        },
        Granted {
            lease_ms: 6_000,
            ..four
        },
    ];
    assert_eq!(live(dir.path()), renewed);
    assert_eq!(counts.read().journal_failures, 0);
}

#[test]
fn the_newest_version_of_what_a_key_spent_is_known() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), LARGE);
    let departed = |start_us, version, spent: &'static [u8]| Departed {
        key: "account".into(),
        start_us,
        version,
        spent: spent.into(),
    };
    // Two calls enter their records in the wrong order.
    journal.enter_departed(&[departed(7, 2, b"two"), departed(5, 1, b"one")], &counts);
    assert!(journal.granted(&permits([1]), &[], &counts));
    journal.enter_departed(&[departed(9, 0, b"")], &counts);
    journal.write(&counts);
    drop(journal);
    let (.., found) = open(dir.path(), LARGE);
    assert_eq!(found.newest["account"], 9);
    assert_eq!(found.spent["account"], (2, b"two".to_vec()));
    assert_eq!(found.into_live(), permits([1]));
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("permits.journal");
    let (journal, counts, _) = open(dir.path(), LARGE);
    journal.granted(&permits([1]), &[], &counts);
    let whole = journal.size().0;
    journal.granted(&permits([2]), &[], &counts);
    drop(journal);
    let bytes = fs::read(&path).unwrap();
    for tail in usize::try_from(whole).unwrap()..bytes.len() {
        // The file ends at `tail`, is zero from there, or has other bytes from there.
        let short = bytes[..tail].to_vec();
        let mut zeros = short.clone();
        zeros.resize(bytes.len() + 9, 0);
        let mut other = bytes.clone();
        other[tail] ^= 0x10;
        for damaged in [short, zeros, other] {
            fs::write(&path, &damaged).unwrap();
            let (journal, counts, found) = open(dir.path(), LARGE);
            assert_eq!(found.damaged, damaged.len() as u64 - whole, "at {tail}");
            assert_eq!(found.into_live(), permits([1]), "at {tail}");
            journal.granted(&permits([3]), &[], &counts);
            assert_eq!(live(dir.path()), permits([1, 3]), "at {tail}");
        }
    }
}

#[test]
fn half_a_header_is_an_empty_journal() {
    let dir = tempdir().unwrap();
    for len in 0..HEADER.len() {
        fs::write(dir.path().join("permits.journal"), &HEADER[..len]).unwrap();
        let (journal, counts, found) = open(dir.path(), LARGE);
        assert_eq!(found.damaged, len as u64);
        journal.granted(&permits([1]), &[], &counts);
        assert_eq!(live(dir.path()), permits([1]));
    }
}

#[test]
fn a_new_file_begins_with_the_live_and_remembers_who_was_granted_last() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), 10_000);
    journal.granted(&permits(0..1_000), &[], &counts);
    journal.gone(&(0..990).collect::<Vec<_>>(), &counts);
    let full = journal.size().0;
    assert!(journal.replace_if_full(&counts));
    assert!(!journal.replace_if_full(&counts));
    assert!(journal.size().0 < full / 20);
    journal.granted(&permits([2_000]), &[], &counts);
    journal.gone(&[995], &counts);
    journal.renewed(&[(996, 900)], &counts);

    let (_, _, found) = open(dir.path(), LARGE);
    assert_eq!(found.newest["host-0"], 1_999);
    let mut expected = permits((990..1_000).chain([2_000]));
    expected.retain(|granted| granted.permit != 995);
    expected[5].lease_ms = 900;
    assert_eq!(live(dir.path()), expected);
    assert_eq!(counts.read().journal_replaced, 1);
    assert_eq!(counts.read().journal_failures, 0);
}

#[test]
fn a_journal_of_live_permits_alone_is_not_begun_anew_each_time() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), 1);
    journal.granted(&permits(0..100), &[], &counts);
    assert!(journal.replace_if_full(&counts));
    journal.granted(&permits([100]), &[], &counts);
    assert!(!journal.replace_if_full(&counts));
    journal.granted(&permits(101..300), &[], &counts);
    assert!(journal.replace_if_full(&counts));
    assert_eq!(live(dir.path()), permits(0..300));
}

#[test]
fn killed_or_without_power_at_any_step_of_a_replacement_nothing_is_lost() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("permits.journal");
    let (old, new) = (with(&path, ".old"), with(&path, ".new"));
    let (journal, counts, _) = open(dir.path(), 1);
    journal.granted(&permits(0..4), &[], &counts);
    journal.gone(&[0], &counts);
    let before = fs::read(&path).unwrap();
    assert!(journal.replace_if_full(&counts));
    drop(journal);
    let after = fs::read(&path).unwrap();
    let put = |path: &Path, bytes: Option<&[u8]>| match bytes {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => drop(fs::remove_file(path)),
    };
    // The process was killed while it wrote the new file, or between the renames.
    for written in 0..=after.len() {
        let after = Some(&after[..written]);
        for (now, was) in [
            (Some(before.as_slice()), None),
            (None, Some(before.as_slice())),
        ] {
            put(&path, now);
            put(&old, was);
            put(&new, after);
            assert_eq!(live(dir.path()), permits(1..4), "{written}");
        }
    }
    // After the renames, the power failed before the new file reached the disk. The missing records
    // are in the old file.
    for written in 0..=after.len() {
        put(&path, Some(&after[..written]));
        put(&old, Some(&before));
        put(&new, None);
        assert_eq!(live(dir.path()), permits(1..4), "{written}");
        // After that start, the records are in the new file.
        put(&old, None);
        assert_eq!(live(dir.path()), permits(1..4), "{written}");
    }
}

#[test]
fn replacements_among_writers_lose_nothing() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), 4_096);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (journal, counts) = (&journal, &counts);
            scope.spawn(move || {
                for i in 0..3_000 {
                    let number = writer * 1_000_000 + i;
                    journal.granted(&permits([number]), &[], counts);
                    if i % 7 != 0 {
                        journal.gone(&[number], counts);
                    } else if i % 2 == 0 {
                        journal.renewed(&[(number, 700)], counts);
                    }
                    if i % 10 == 0 {
                        journal.replace_if_full(counts);
                    }
                }
            });
        }
    });
    assert!(counts.read().journal_replaced > 3, "{:?}", counts.read());
    assert_eq!(counts.read().journal_failures, 0);
    let expected: BTreeSet<(u64, u32)> = (0..3)
        .flat_map(|writer| (0..3_000).step_by(7).map(move |i| (writer, i)))
        .map(|(writer, i)| (writer * 1_000_000 + i, if i % 2 == 0 { 700 } else { 100 }))
        .collect();
    let found = live(dir.path());
    let found: BTreeSet<_> = found.iter().map(|one| (one.permit, one.lease_ms)).collect();
    assert!(found == expected, "{} of {}", found.len(), expected.len());
}

#[test]
fn other_files_are_refused_in_one_line() {
    let dir = tempdir().unwrap();
    for (name, bytes, told) in [
        ("permits.journal", "politely permits 7\n", "another version"),
        ("permits.journal", "a letter to a friend", "not a journal"),
        (
            "permits.journal.old",
            "a letter to a friend",
            "not a journal",
        ),
    ] {
        let path = dir.path().join(name);
        fs::write(dir.path().join("permits.journal"), HEADER).unwrap();
        fs::write(&path, bytes).unwrap();
        let error = Journal::open(dir.path(), LARGE, Durability::Kill, &Counts::default()).err();
        let error = error.unwrap().to_string();
        assert!(
            error.contains(told) && error.lines().count() == 1,
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_flipped_bit_costs_the_damaged_record_alone() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), LARGE);
    for number in 1..=8 {
        assert!(journal.granted(&permits([number]), &[], &counts));
    }
    drop(journal);
    let path = dir.path().join("permits.journal");
    let sound = fs::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let opened = Journal::open(dir.path(), LARGE, Durability::Kill, &Counts::default());
        let (_, found) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                // A flipped bit can turn the digit of the format into another digit.
                assert!(at < HEADER.len(), "byte {at}: {why}");
                assert_eq!(why.to_string().lines().count(), 1);
                continue;
            }
        };
        let live = found.into_live().len();
        assert!(live >= 7, "byte {at}: {live} of 8");
        // The next start finds an undamaged file.
        let (_, _, found) = open(dir.path(), LARGE);
        assert_eq!((found.damaged, found.live.len()), (0, live), "byte {at}");
        for name in ["permits.journal.old", "permits.journal.damaged"] {
            let _ = fs::remove_file(dir.path().join(name));
        }
    }
}

#[test]
fn calls_that_are_ready_together_share_a_write() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), LARGE);
    let one = journal.enter(&permits([1, 2]), &[]);
    let other = journal.enter(&permits([3]), &[2]);
    let empty = journal.size().0;
    assert!(journal.finish(other, &counts));
    let written = journal.size().0;
    assert!(written > empty);
    assert!(journal.finish(one, &counts));
    assert_eq!(journal.size().0, written);
    drop(journal);
    let live: Vec<_> = live(dir.path()).iter().map(|live| live.permit).collect();
    assert_eq!(live, [1, 3]);
}

#[test]
fn a_failed_write_is_the_failure_of_each_call_that_entered() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), LARGE);
    let calls = [1, 2].map(|number| journal.enter(&permits([number]), &[]));
    journal.fail();
    for call in calls {
        assert!(!journal.finish(call, &counts));
    }
    assert_eq!(journal.size().1, 0, "no permit is live");
}

#[test]
fn what_a_call_entered_comes_before_the_records_of_others() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), 64);
    let renewed = journal.enter(&permits([1]), &[]);
    journal.renewed(&[(1, 9_000)], &counts);
    let ended = journal.enter(&permits([2]), &[]);
    journal.gone(&[2], &counts);
    // The call that entered this record is given up.
    drop(journal.enter(&permits([3]), &[]));
    assert!(journal.replace_if_full(&counts));
    assert!(journal.finish(renewed, &counts) && journal.finish(ended, &counts));
    drop(journal);
    let live = live(dir.path());
    let live: Vec<_> = live
        .iter()
        .map(|live| (live.permit, live.lease_ms))
        .collect();
    assert_eq!(live[0], (1, 9_000));
    assert_eq!((live.len(), live[1].0), (2, 3));
}

#[test]
fn an_older_renewal_does_not_shorten_a_lease() {
    let dir = tempdir().unwrap();
    let (journal, counts, _) = open(dir.path(), LARGE);
    assert!(journal.granted(&permits([1]), &[], &counts));
    journal.renewed(&[(1, 9_000)], &counts);
    journal.renewed(&[(1, 5_000)], &counts);
    drop(journal);
    assert_eq!(live(dir.path())[0].lease_ms, 9_000);
}

#[test]
fn for_power_losses_every_call_is_synced_and_nothing_else_changes() {
    let dir = tempdir().unwrap();
    let counts = Counts::default();
    let (journal, _) = Journal::open(dir.path(), 2_000, Durability::Power, &counts).unwrap();
    thread::scope(|scope| {
        for first in 0..4_u64 {
            let (journal, counts) = (&journal, &counts);
            scope.spawn(move || {
                for number in 0..50 {
                    let number = first * 1_000 + number;
                    assert!(journal.granted(&permits([number]), &[], counts));
                    if !number.is_multiple_of(10) {
                        journal.gone(&[number], counts);
                    }
                    journal.replace_if_full(counts);
                }
            });
        }
    });
    assert_eq!(counts.read().journal_failures, 0);
    assert!(counts.read().journal_replaced > 0);
    drop(journal);
    assert_eq!(live(dir.path()).len(), 20);
}
