//! How a run ended, as the shell sees it.

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
    /// `path: why`, the form in which every file complaint is made.
    pub(crate) fn file(path: &std::path::Path, why: &std::io::Error) -> Self {
        Self(format!("{}: {}", path.display(), io_words(why)))
    }
}

/// The reason of an I/O error in lower case and without its number: "no space left on device".
pub(crate) fn io_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_are_said_in_words() {
        assert_eq!(
            io_words(&std::io::Error::from_raw_os_error(28)),
            "no space left on device"
        );
        assert_eq!(io_words(&std::io::Error::other("")), "");
    }
}
