//! Secrets of the command line: they come from files or the environment, never from arguments.

use std::path::Path;

use crate::exit::Wrong;

/// The variable that holds the coordinator's token if no file is named.
const TOKEN: &str = "POLITELY_TOKEN";
/// The variable that holds the engine's password if no file is named.
const STORE_PASSWORD: &str = "POLITELY_STORE_PASSWORD";

/// A secret and the place it was read from.
pub(crate) struct Token {
    pub(crate) text: String,
    /// The file or the variable, for error messages.
    pub(crate) place: String,
}

/// Reads the coordinator's token from `file`, or from the environment if no file is named.
pub(crate) fn read(file: Option<&Path>) -> Result<Option<Token>, Wrong> {
    secret(file, TOKEN)
}

/// Reads the engine's password from `file`, or from the environment if no file is named. Returns
/// `url` with the password in it.
pub(crate) fn store_url(url: &str, file: Option<&Path>) -> Result<String, Wrong> {
    let Some(password) = secret(file, STORE_PASSWORD)? else {
        return Ok(url.to_owned());
    };
    with_password(url, password.text.trim_end_matches(['\r', '\n'])).ok_or_else(|| {
        let place = password.place;
        Wrong(format!(
            "--store: the URL has a password, and {place} as well; remove one"
        ))
    })
}

/// Puts `password` into `url`. Returns `None` if `url` has a password already.
fn with_password(url: &str, password: &str) -> Option<String> {
    // The engine's URL parser refuses a URL of another form.
    let Some((scheme, rest)) = url.split_once("://") else {
        return Some(url.to_owned());
    };
    let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    if login.contains(':') {
        return None;
    }
    let password =
        percent_encoding::utf8_percent_encode(password, percent_encoding::NON_ALPHANUMERIC);
    Some(format!("{scheme}://{login}:{password}@{rest}"))
}

/// Reads a secret from a file.
pub(crate) fn of_file(file: &Path) -> Result<String, Wrong> {
    let text = std::fs::read_to_string(file).map_err(|why| Wrong::file(file, &why))?;
    refuse_shared(file)?;
    Ok(text)
}

fn secret(file: Option<&Path>, variable: &str) -> Result<Option<Token>, Wrong> {
    let (text, place) = match file {
        Some(file) => (of_file(file)?, file.display().to_string()),
        None => match std::env::var(variable) {
            Ok(text) => (text, variable.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(why) => return Err(Wrong(format!("{variable}: {why}"))),
        },
    };
    Ok(Some(Token { text, place }))
}

/// Refuses a secret that other users of the machine can read: the file allows it, and so do all
/// folders above it.
#[cfg(unix)]
fn refuse_shared(file: &Path) -> Result<(), Wrong> {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).map(|meta| meta.permissions().mode());
    let whole = std::fs::canonicalize(file).map_err(|why| Wrong::file(file, &why))?;
    let is_readable = mode(&whole).is_ok_and(|mode| mode & 0o004 != 0);
    let is_reachable = || {
        let mut folders = whole.ancestors().skip(1);
        folders.all(|folder| mode(folder).is_ok_and(|mode| mode & 0o001 != 0))
    };
    if is_readable && is_reachable() {
        let place = file.display();
        return Err(Wrong(format!(
            "{place}: every user of this machine can read it; run chmod 600 {place}"
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_shared(_: &Path) -> Result<(), Wrong> {
    Ok(())
}

/// Returns a hint about an answer of the coordinator.
pub(crate) fn advice(why: &str) -> &'static str {
    if why.contains("401 Unauthorized") {
        "; --token-file FILE or POLITELY_TOKEN must hold its token"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_where_the_url_has_room_for_it() {
        for (url, with) in [
            ("redis://h:6379/1", "redis://:p%40%2F@h:6379/1"),
            ("redis://ann@h", "redis://ann:p%40%2F@h"),
            (
                "redis+cluster://a:1,b:2",
                "redis+cluster://:p%40%2F@a:1,b:2",
            ),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(with_password(url, "p@/").as_deref(), Some(with), "{url}");
        }
        assert_eq!(with_password("redis://ann:secret@h", "p"), None);
        assert_eq!(with_password("redis://:secret@h", "p"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_every_user_can_read_is_refused() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "0123456789abcdef").unwrap();
        let is_refused = |folder_mode: u32, file_mode: u32| {
            let set = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode));
            set(folder.path(), folder_mode).unwrap();
            set(&file, file_mode).unwrap();
            read(Some(&file)).err().map(|why| why.to_string())
        };
        assert!(is_refused(0o755, 0o600).is_none() && is_refused(0o755, 0o640).is_none());
        assert!(
            is_refused(0o700, 0o644).is_none(),
            "nobody else comes into the folder"
        );
        let told = is_refused(0o755, 0o644).unwrap();
        assert!(
            told.ends_with(&format!("run chmod 600 {}", file.display())),
            "{told}"
        );
    }
}
