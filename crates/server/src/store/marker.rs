//! The marker `politely.state`, which records that a folder holds a database, and the database's
//! id.
//!
//! Without it, a database that was emptied or removed would look like a new folder, and all
//! settings would be lost silently.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::OpenError;

const NAME: &str = "politely.state";
const FIRST: &str = "politely state ";

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Returns the id of the database that belongs to `dir`, or `None` for a new folder.
pub(super) fn read(dir: &Path) -> Result<Option<u64>, OpenError> {
    let path = path(dir);
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(OpenError::io(&path, why)),
    };
    let id = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(FIRST));
    let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
    id.map(Some).ok_or_else(|| OpenError::Damaged {
        path,
        why: "it does not name a database".to_owned(),
        advice: "restore a backup (politely state restore), or remove this file if politely.redb is \
                 the right one",
    })
}

/// Marks `dir` as the folder of the database `id`. The marker is on disk when this returns.
pub(super) fn write(dir: &Path, id: u64) -> Result<(), OpenError> {
    let path = path(dir);
    let text = format!(
        "{FIRST}{id:016x}\nThis file says that politely.redb belongs to this folder. Keep it.\n"
    );
    let write = || {
        let mut file = crate::private::create(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|why| OpenError::io(&path, why))
}
