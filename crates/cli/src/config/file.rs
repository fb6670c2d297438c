//! The text of `politely.toml`, and the line of an error in it.

use std::path::Path;

use super::Knobs;
use crate::exit::Wrong;

pub(super) fn read(path: &Path) -> Result<Knobs, Wrong> {
    let text = std::fs::read_to_string(path).map_err(|why| Wrong::file(path, &why))?;
    parse(&text).map_err(|(line, why)| Wrong(format!("{}:{line}: {why}", path.display())))
}

/// Parses settings. The error is the number of the wrong line (from 1) and the reason.
pub(super) fn parse(text: &str) -> Result<Knobs, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        (line, in_one_line(error.message()))
    })
}

/// Returns a parser's error as one line. For an unknown key it names the nearest known key instead
/// of all keys.
pub(crate) fn in_one_line(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field")
        && let Some(key) = quoted.next()
    {
        let nearest = quoted
            .map(|known| (strsim::damerau_levenshtein(key, known), known))
            .filter(|&(distance, known)| distance <= known.len().max(key.len()) / 2)
            .min();
        return match nearest {
            Some((_, known)) => format!("unknown key `{key}`; did you mean `{known}`?"),
            None => format!("unknown key `{key}`; `politely fetch --help` names them all"),
        };
    }
    message
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("; ")
}
