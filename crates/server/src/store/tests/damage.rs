//! Tests of damaged folders. Flipped bits and emptied or replaced files cause one log line, never a
//! panic and never a silent new start.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};

use super::*;

/// Returns a closed folder with states, a configuration and a permit.
async fn folder() -> tempfile::TempDir {
    let dir = tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let keys = (0..200).map(|i| (format!("host-{i:03}"), state(i)));
    store.keep_now(keys.collect()).await.unwrap();
    store
        .keep_config(b"the configuration".to_vec(), 1)
        .await
        .unwrap();
    assert!(store.granted(&[permit(1, "host-001")], &[]));
    store.close();
    dir
}

fn database(dir: &Path) -> PathBuf {
    dir.join("politely.redb")
}

fn refused(dir: &Path) -> String {
    let said = Store::open(dir).err().expect("refused").to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("politely.redb"), "{said}");
    said
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempdir().unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn a_flipped_bit_in_the_database_is_told_or_harms_nothing() {
    let sound = folder().await;
    let bytes = fs::read(database(sound.path())).unwrap();
    // The damaged places are spread evenly over the bytes in use, with a few other bytes.
    let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
    let used: Vec<usize> = used.map(|(at, _)| at).collect();
    let step = used.len() / 150 + 1;
    let places = used.iter().step_by(step).copied();
    let (mut told, mut fine) = (0, 0);
    for at in places.chain((0..320).step_by(13)) {
        let dir = copy(sound.path());
        let mut file = OpenOptions::new()
            .write(true)
            .open(database(dir.path()))
            .unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[bytes[at] ^ (1 << (at % 8))]).unwrap();
        drop(file);
        match Store::open(dir.path()) {
            Err(why) => {
                let said = why.to_string();
                assert_eq!(said.lines().count(), 1, "byte {at}: {said}");
                assert!(said.contains("politely.redb"), "byte {at}: {said}");
                // The next start does not create a new database either.
                assert!(Store::open(dir.path()).is_err(), "byte {at}");
                told += 1;
            }
            Ok((store, kept)) => {
                assert_eq!(
                    kept.config,
                    Some(b"the configuration".to_vec()),
                    "byte {at}"
                );
                let states = states(&store);
                assert_eq!(states.len(), 200, "byte {at}");
                assert!(
                    states
                        .iter()
                        .all(|(key, number)| *key == format!("host-{number:03}"))
                );
                fine += 1;
            }
        }
    }
    assert!(told > 20, "{told} told, {fine} fine");
}

#[tokio::test]
async fn an_emptied_database_is_not_a_fresh_start() {
    let sound = folder().await;
    let dir = copy(sound.path());
    fs::write(database(dir.path()), "").unwrap();
    let said = refused(dir.path());
    assert!(
        said.contains("empty") && said.contains("state restore"),
        "{said}"
    );

    let dir = copy(sound.path());
    fs::remove_file(database(dir.path())).unwrap();
    assert!(refused(dir.path()).contains("missing"));

    let len = fs::metadata(database(sound.path())).unwrap().len();
    for share in 1..8 {
        let dir = copy(sound.path());
        let file = OpenOptions::new()
            .write(true)
            .open(database(dir.path()))
            .unwrap();
        file.set_len(len * share / 8).unwrap();
        let said = refused(dir.path());
        assert!(said.contains("politely state restore"), "{share}/8: {said}");
    }

    // The database of another folder is undamaged, but does not belong to this folder.
    let other = folder().await;
    let dir = copy(sound.path());
    fs::copy(database(other.path()), database(dir.path())).unwrap();
    assert!(refused(dir.path()).contains("politely.state"));

    // To begin with a new database, an operator removes the marker and the journal.
    let dir = copy(sound.path());
    fs::write(database(dir.path()), "").unwrap();
    fs::remove_file(dir.path().join("politely.state")).unwrap();
    fs::remove_file(dir.path().join("permits.journal")).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().1.boot, 1);
}

#[tokio::test]
async fn an_older_database_is_not_what_was_acknowledged() {
    let dir = folder().await;
    let older = copy(dir.path());
    let (store, _) = Store::open(dir.path()).unwrap();
    store
        .keep_now(vec![("later".into(), state(1))])
        .await
        .unwrap();
    drop(store);
    fs::copy(database(older.path()), database(dir.path())).unwrap();
    let said = refused(dir.path());
    assert!(said.contains("older than permits.journal"), "{said}");
}

#[tokio::test]
async fn a_database_that_is_replaced_meanwhile_takes_no_writes() {
    let dir = folder().await;
    let (store, _) = Store::open(dir.path()).unwrap();
    fs::write(database(dir.path()), "").unwrap();
    for number in 1..3 {
        let kept = store.keep_now(vec![("a".into(), state(number))]).await;
        let said = kept.unwrap_err().to_string();
        assert!(said.contains("emptied or replaced"), "{said}");
        assert!(store.last_error().is_some());
    }
    drop(store);
    refused(dir.path());
}

#[tokio::test]
async fn a_backup_brings_all_back_and_a_damaged_one_nothing() {
    let dir = folder().await;
    let place = tempdir().unwrap();
    let file = place.path().join("backup");
    let found = check(dir.path()).unwrap();
    assert_eq!((found.keys, found.keys_damaged, found.permits), (200, 0, 1));
    assert_eq!((found.boots, found.journal_damaged), (1, 0));
    assert_eq!(backup(dir.path(), &file).unwrap(), found);
    assert!(
        backup(dir.path(), &file).is_err(),
        "a backup is not overwritten"
    );

    let (store, _) = Store::open(dir.path()).unwrap();
    let in_use = [check(dir.path()).err(), restore(dir.path(), &file).err()];
    for why in in_use {
        let said = why.expect("in use").to_string();
        assert!(said.contains("stop it first"), "{said}");
    }
    drop(store);
    let said = restore(dir.path(), &file).unwrap_err().to_string();
    assert!(said.contains("holds a state already"), "{said}");

    // The targets are a damaged folder and a new folder.
    fs::write(database(dir.path()), "").unwrap();
    assert!(check(dir.path()).is_err());
    let new = place.path().join("new");
    for folder in [dir.path(), &new] {
        assert_eq!(restore(folder, &file).unwrap(), found);
        let (store, kept) = Store::open(folder).unwrap();
        // No number of a permit or version is used twice.
        assert!(kept.boot > 1_000, "{}", kept.boot);
        assert_eq!(kept.config, Some(b"the configuration".to_vec()));
        assert_eq!((states(&store).len(), kept.live.len()), (200, 1));
    }
    assert!(dir.path().join("replaced/politely.redb").exists());

    let bytes = fs::read(&file).unwrap();
    let damaged = place.path().join("damaged");
    for at in (0..bytes.len()).step_by(bytes.len() / 40 + 1).chain(0..40) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&damaged, &bytes).unwrap();
        let said = restore(&place.path().join("none"), &damaged).unwrap_err();
        assert_eq!(said.to_string().lines().count(), 1);
    }
    fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    assert!(restore(&place.path().join("none"), &damaged).is_err());
}
