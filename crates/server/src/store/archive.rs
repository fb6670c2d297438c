//! A state folder as one file: backup, restore, and a check that changes nothing.
//!
//! The file begins with [`HEADER`]. Then come the folder's files, each as
//! `length of the name u8 · name · length u64 · bytes · crc32 u32`, little-endian. The checksum
//! covers the whole entry before it. A zero byte ends the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::count::Counts;
use super::journal::Journal;
use super::tables::{self, Tables};
use super::{Durability, JOURNAL_BYTES_MAX, OpenError, marker};

const HEADER: &[u8; 18] = b"politely backup 1\n";
/// The files of a state folder. Damaged files that were set aside are not among them.
const NAMES: [&str; 4] = [
    "politely.redb",
    "politely.state",
    "permits.journal",
    "permits.journal.old",
];
/// The number of starts that a restore skips.
///
/// A restored folder may be older than the last start. Its next permits and versions need higher
/// numbers than all earlier ones.
const BOOTS_SKIPPED: u64 = 1_000;

/// The contents of a state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Keys with a state.
    pub keys: u64,
    /// Keys whose state is damaged, out of `keys`.
    pub keys_damaged: u64,
    /// Permits in the journal that have not ended.
    pub permits: u64,
    /// Damaged bytes in the journal, including half a record that a kill left at its end.
    pub journal_damaged: u64,
    /// Starts of a coordinator on this folder.
    pub boots: u64,
}

/// Why a folder cannot be checked, backed up or restored. Each error is one line.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The folder cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read or written.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The folder holds no state to check or back up.
    #[error("{}: no state folder of politely serve; name the one given to --state", .0.display())]
    NoState(PathBuf),
    /// A running coordinator uses the folder.
    #[error("{}: in use by a coordinator; stop it first", .0.display())]
    InUse(PathBuf),
    /// The backup is damaged or incomplete.
    #[error("{}: {why}; use another backup", path.display())]
    Backup {
        /// The backup.
        path: PathBuf,
        /// The damage.
        why: &'static str,
    },
    /// The target folder holds a database that works.
    #[error("{}: holds a state already; move it away, or restore into another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The database cannot be read.
    #[error("{}: {why}; restore a backup (politely state restore)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        why: String,
    },
}

type Result<T> = std::result::Result<T, ArchiveError>;

fn io_of(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |why| ArchiveError::Io { path, why }
}

/// Locks `dir` against coordinators until the file is dropped.
fn lock(dir: &Path) -> Result<File> {
    let path = tables::path(dir);
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = match file {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            if marker::read(dir)?.is_none() {
                return Err(ArchiveError::NoState(dir.to_owned()));
            }
            let missing = "it is missing, but politely.state says that it was in use".to_owned();
            return Err(ArchiveError::Damaged { path, why: missing });
        }
        Err(why) => return Err(io_of(&path)(why)),
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ArchiveError::InUse(path)),
        Err(fs::TryLockError::Error(why)) => Err(io_of(&path)(why)),
    }
}

/// Reads and checks all files of `dir`. It works on a copy, so it repairs and moves nothing in
/// `dir`.
///
/// # Errors
/// The folder is damaged, is in use, or holds no state.
pub fn check(dir: &Path) -> Result<Found> {
    let copy = Scratch::beside(dir)?;
    {
        let _locked = lock(dir)?;
        for name in NAMES {
            let (from, to) = (dir.join(name), copy.0.join(name));
            match fs::copy(&from, &to) {
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(io_of(&from)(why)),
            }
        }
    }
    inspect(&copy.0).map_err(|why| renamed(why, &copy.0, dir))
}

fn inspect(dir: &Path) -> Result<Found> {
    let (tables, start) = Tables::open(dir)?;
    let counts = Counts::default();
    let (_, found) = Journal::open(dir, JOURNAL_BYTES_MAX, Durability::Kill, &counts)?;
    let mut keys = 0;
    let damaged = tables.for_each_key(|_, _| keys += 1);
    let damaged = damaged.map_err(|why| ArchiveError::Damaged {
        path: tables::path(dir),
        why,
    })?;
    if found.commits > start.commits {
        return Err(ArchiveError::Damaged {
            path: tables::path(dir),
            why: "it is older than permits.journal, so acknowledged changes are missing".to_owned(),
        });
    }
    Ok(Found {
        keys: keys + damaged.len() as u64,
        keys_damaged: damaged.len() as u64,
        permits: found.live_len() as u64,
        journal_damaged: found.damaged,
        boots: start.boot - 1,
    })
}

/// Replaces the paths of the copy in `why` with those of the folder.
fn renamed(why: ArchiveError, copy: &Path, dir: &Path) -> ArchiveError {
    let of = |path: PathBuf| match path.strip_prefix(copy) {
        Ok(name) => dir.join(name),
        Err(_) => path,
    };
    match why {
        ArchiveError::Open(OpenError::Damaged { path, why, .. }) => {
            // The file of the copy was moved, but the file of the folder was not.
            let why = why.split(" and was moved to").next().unwrap_or(&why);
            ArchiveError::Damaged {
                path: of(path),
                why: why.to_owned(),
            }
        }
        ArchiveError::Open(OpenError::NotOurs { path, why }) => {
            let path = of(path);
            ArchiveError::Open(OpenError::NotOurs { path, why })
        }
        ArchiveError::Open(OpenError::Version { path, format }) => {
            let path = of(path);
            ArchiveError::Open(OpenError::Version { path, format })
        }
        ArchiveError::Damaged { path, why } => ArchiveError::Damaged {
            path: of(path),
            why,
        },
        why => why,
    }
}

/// Writes all files of `dir` into `file`, which must not exist. The file is on disk when this
/// returns.
///
/// # Errors
/// The folder is damaged, is in use, or holds no state. The file exists or cannot be written.
pub fn backup(dir: &Path, file: &Path) -> Result<Found> {
    // The check comes first, because damage in a backup would otherwise show only when the backup
    // is needed.
    let found = check(dir)?;
    let _locked = lock(dir)?;
    let out = crate::private::create_new(file);
    let out = out.map_err(io_of(file))?;
    let mut out = BufWriter::new(out);
    let written = (|| {
        out.write_all(HEADER)?;
        for name in NAMES {
            let mut bytes = Vec::new();
            match File::open(dir.join(name)) {
                Ok(mut from) => from.read_to_end(&mut bytes)?,
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                Err(why) => return Err(why),
            };
            let mut entry = vec![name.len() as u8];
            entry.extend_from_slice(name.as_bytes());
            entry.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            let mut sum = crc32fast::Hasher::new();
            sum.update(&entry);
            sum.update(&bytes);
            out.write_all(&entry)?;
            out.write_all(&bytes)?;
            out.write_all(&sum.finalize().to_le_bytes())?;
        }
        out.write_all(&[0])?;
        out.flush()?;
        out.get_ref().sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(file);
    }
    written.map_err(io_of(file))?;
    Ok(found)
}

/// Restores the backup in `file` into `dir`, and creates `dir` if needed. Files of a damaged state
/// are moved to `dir/replaced`. A state that works is never replaced.
///
/// # Errors
/// The backup is damaged. The folder is in use, holds a state that works, or cannot be written.
pub fn restore(dir: &Path, file: &Path) -> Result<Found> {
    let files = read(file)?;
    crate::private::folder(dir).map_err(io_of(dir))?;
    match check(dir) {
        Ok(_) => return Err(ArchiveError::NotEmpty(dir.to_owned())),
        Err(why @ (ArchiveError::InUse(_) | ArchiveError::Io { .. })) => return Err(why),
        Err(_) => {}
    }
    let aside = dir.join("replaced");
    for name in NAMES {
        let old = dir.join(name);
        if old.exists() {
            crate::private::folder(&aside).map_err(io_of(&aside))?;
            fs::rename(&old, aside.join(name)).map_err(io_of(&old))?;
        }
    }
    // The marker is written last, so that its absence shows an interrupted restore.
    for (name, bytes) in files.iter().filter(|(name, _)| name != "politely.state") {
        write(&dir.join(name), bytes)?;
    }
    for (name, bytes) in files.iter().filter(|(name, _)| name == "politely.state") {
        write(&dir.join(name), bytes)?;
    }
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io_of(dir))?;
    let found = check(dir)?;
    let (tables, _) = Tables::open(dir)?;
    let skipped = tables.skip_boots(BOOTS_SKIPPED);
    skipped.map_err(|why| ArchiveError::Damaged {
        path: tables::path(dir),
        why,
    })?;
    Ok(found)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = crate::private::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(io_of(path))
}

/// Returns the files of a backup, if the backup is complete.
fn read(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let damaged = |why| ArchiveError::Backup {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(io_of(path))?;
    let mut bytes = Vec::new();
    let read = BufReader::new(file).read_to_end(&mut bytes);
    read.map_err(io_of(path))?;
    let mut rest = bytes
        .strip_prefix(HEADER)
        .ok_or_else(|| damaged("not a backup of politely"))?;
    let mut files = Vec::new();
    loop {
        match entry(rest) {
            Some(Entry::End) => break,
            Some(Entry::File(name, bytes, after)) if NAMES.contains(&&*name) => {
                files.push((name, bytes));
                rest = after;
            }
            _ => return Err(damaged("the backup is damaged or cut off")),
        }
    }
    let has = |wanted: &str| files.iter().any(|(name, _)| name == wanted);
    if has("politely.redb") && has("politely.state") {
        Ok(files)
    } else {
        Err(damaged("the backup holds no database"))
    }
}

enum Entry<'a> {
    End,
    File(String, Vec<u8>, &'a [u8]),
}

fn entry(all: &[u8]) -> Option<Entry<'_>> {
    let (&name_len, rest) = all.split_first()?;
    if name_len == 0 {
        return rest.is_empty().then_some(Entry::End);
    }
    let (name, rest) = rest.split_at_checked(usize::from(name_len))?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (bytes, rest) = rest.split_at_checked(len)?;
    let (sum, rest) = rest.split_first_chunk()?;
    let covered = &all[..1 + name.len() + 8 + len];
    if crc32fast::hash(covered) != u32::from_le_bytes(*sum) {
        return None;
    }
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some(Entry::File(name, bytes.to_vec(), rest))
}

/// A folder for a copy. It is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Creates the folder within `dir`, so that it is on a disk with room for such files.
    fn beside(dir: &Path) -> Result<Self> {
        if !dir.is_dir() {
            return Err(ArchiveError::NoState(dir.to_owned()));
        }
        let path = dir.join(format!(".check-{}", std::process::id()));
        crate::private::folder(&path).map_err(io_of(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
