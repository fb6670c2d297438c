//! How a run ended, as the shell sees it.

use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes; `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Every URL was fetched.
    AllFetched = 0,
    /// Some URLs failed, are not finished, or their results could not be written.
    SomeFailed = 1,
    /// The command cannot be done as given: wrong usage, unreadable input, unusable state folder.
    Usage = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why nothing was started: one line, said once, then exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    /// No HTTP client can be made.
    pub(crate) fn no_client(why: &str) -> Self {
        let advice = if why.contains("CA certificates") {
            "; install ca-certificates, or name a file of them in SSL_CERT_FILE"
        } else {
            ""
        };
        Self(format!("no HTTP client: {why}{advice}"))
    }

    /// `path: why`, the form in which every file complaint is made.
    pub(crate) fn file(path: &Path, why: &io::Error) -> Self {
        Self(format!("{}: {}", path.display(), io_words(why)))
    }
}

/// Makes a folder, and those above it, unless it is there.
pub(crate) fn make_folder(path: &Path) -> Result<(), Wrong> {
    if path.exists() && !path.is_dir() {
        let place = path.display();
        return Err(Wrong(format!(
            "{place}: expected a directory, found a file"
        )));
    }
    std::fs::create_dir_all(path).map_err(|why| Wrong::file(path, &why))
}

/// The reason of an I/O error in lower case and without its number: "no space left on device".
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

/// Why a URL is none.
pub(crate) fn url_words(error: url::ParseError) -> String {
    match error {
        url::ParseError::RelativeUrlWithoutBase => {
            "it must begin with http:// or https://".to_owned()
        }
        error => error.to_string(),
    }
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
