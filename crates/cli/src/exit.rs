//! The exit codes and usage errors of the command line.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

/// The exit codes; `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Every URL was fetched.
    AllFetched = 0,
    /// Some URLs failed or are not finished, or their results could not be written.
    SomeFailed = 1,
    /// The command is impossible as given: wrong usage, unreadable input, or an unusable state
    /// folder.
    Usage = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why the command did not start. It is printed once as one line, then the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    /// Returns the error for an HTTP client that cannot be built.
    pub(crate) fn no_client(why: &str) -> Self {
        let advice = if why.contains("CA certificates") {
            "; install ca-certificates, or name a file of them in SSL_CERT_FILE"
        } else {
            ""
        };
        Self(format!("no HTTP client: {why}{advice}"))
    }

    /// Returns `path: why`, the form of every error about a file.
    pub(crate) fn file(path: &Path, why: &io::Error) -> Self {
        Self(format!("{}: {}", path.display(), io_words(why)))
    }
}

/// Makes a folder and its parents if they do not exist.
pub(crate) fn make_folder(path: &Path) -> Result<(), Wrong> {
    if path.exists() && !path.is_dir() {
        let place = path.display();
        return Err(Wrong(format!(
            "{place}: expected a directory, found a file"
        )));
    }
    std::fs::create_dir_all(path).map_err(|why| Wrong::file(path, &why))
}

/// Returns the reason of an I/O error in lower case, without its number: "no space left on device".
pub(crate) fn io_words(error: &io::Error) -> String {
    let text = error.to_string();
    if text == "stream did not contain valid UTF-8" {
        return "is no text (UTF-8)".to_owned();
    }
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Returns whether a write failed because the disk, or the user's share of it, is full.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Returns why a text is not a URL.
pub(crate) fn url_words(error: url::ParseError) -> String {
    match error {
        url::ParseError::RelativeUrlWithoutBase => {
            "it must begin with http:// or https://".to_owned()
        }
        error => error.to_string(),
    }
}

/// Writes to standard output, and returns whether it is still read.
pub(crate) fn print(text: &[u8]) -> Result<bool, Wrong> {
    is_read(io::stdout().write_all(text))
}

/// Returns whether standard output was still read when this was written. A reader that closes
/// early, such as `head`, is not an error.
pub(crate) fn is_read(written: io::Result<()>) -> Result<bool, Wrong> {
    match written {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Wrong::file(Path::new("standard output"), &why)),
    }
}

/// Builds a runtime with all of its drivers.
pub(crate) fn runtime(builder: &mut Builder) -> Result<Runtime, Wrong> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|why| Wrong(format!("no runtime: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_are_said_in_words() {
        assert_eq!(
            io_words(&io::Error::from_raw_os_error(28)),
            "no space left on device"
        );
        assert_eq!(io_words(&io::Error::other("")), "");
    }
}
