//! Files and folders that only their owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates or truncates a file of mode 0600.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Opens a file for appending. A new file has mode 0600.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    options().append(true).create(true).open(path)
}

/// Creates a folder of mode 0700 and its parents, if it does not exist.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are of Unix"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
