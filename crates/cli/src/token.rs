//! The secret that workers and the coordinator share.

use std::path::Path;

use crate::exit::Wrong;

/// Where it may be, beside a file. Never an argument: those are for everybody to see.
const TOKEN: &str = "POLITELY_TOKEN";

/// A token as it was found.
pub(crate) struct Token {
    pub(crate) text: String,
    /// Where, for complaints.
    pub(crate) place: String,
}

/// What `file` says, or the environment if no file is named.
pub(crate) fn read(file: Option<&Path>) -> Result<Option<Token>, Wrong> {
    let (text, place) = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|why| Wrong::file(file, &why))?;
            (text, file.display().to_string())
        }
        None => match std::env::var(TOKEN) {
            Ok(text) => (text, TOKEN.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(why) => return Err(Wrong(format!("{TOKEN}: {why}"))),
        },
    };
    Ok(Some(Token { text, place }))
}

/// What to do about an answer, for people who would not know.
pub(crate) fn advice(why: &str) -> &'static str {
    if why.contains("401 Unauthorized") {
        "; --token-file FILE or POLITELY_TOKEN must hold its token"
    } else {
        ""
    }
}
