//! Files and folders that only their owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Creates or truncates a file of mode 0600.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Replaces a file by one of mode 0600 with this content, in one step.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let made = path.with_extension("new");
    create(&made)?.write_all(content)?;
    std::fs::rename(made, path)
}

/// Creates a file of mode 0600 that does not exist.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    options().write(true).create_new(true).open(path)
}

/// Opens a file for appending. A new file has mode 0600.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    options().append(true).create(true).open(path)
}

/// Opens a file for reading and appending. A new file has mode 0600.
pub(crate) fn read_append(path: &Path) -> io::Result<File> {
    options().read(true).append(true).create(true).open(path)
}

/// Opens a file for reading and writing. A new file has mode 0600.
pub(crate) fn read_write(path: &Path) -> io::Result<File> {
    options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Creates a folder of mode 0700 and its parents, if it does not exist.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Sets the mode of a state folder to 0700 if its group or other users may use it.
///
/// A folder that `is_ours` or is empty is changed. Any other folder keeps its mode, because other
/// programs use it. One line in the log says what was done.
#[cfg(unix)]
pub(crate) fn tighten(path: &Path, is_ours: bool) -> io::Result<()> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    if mode & !0o7700 == 0 {
        return Ok(());
    }
    let place = path.display();
    let is_foreign = |entry: io::Result<std::fs::DirEntry>| {
        // A new file system has this folder.
        entry.is_ok_and(|entry| entry.file_name() != "lost+found")
    };
    if !is_ours && std::fs::read_dir(path)?.any(is_foreign) {
        tracing::warn!(
            "{place}: other users may enter it (mode {mode:04o}), and it holds files of other \
             programs, so its mode stays; name another folder with --state"
        );
        return Ok(());
    }
    match std::fs::set_permissions(path, Permissions::from_mode(0o700)) {
        Ok(()) => tracing::warn!("{place}: changed its mode from {mode:04o} to 0700"),
        Err(why) => tracing::warn!(
            "{place}: other users may enter it (mode {mode:04o}), and its mode cannot be changed: \
             {why}; run chmod 700 {place} as its owner"
        ),
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn tighten(_: &Path, _: bool) -> io::Result<()> {
    Ok(())
}

fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are of Unix"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
