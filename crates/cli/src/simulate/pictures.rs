//! The folder for pictures.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "rivals")]
use politely_sim::backoff::Row;
use politely_sim::{Score, Summary, plot};

use crate::exit::{Wrong, make_folder};

/// The folder of `--plot`.
pub(super) struct Pictures(PathBuf);

impl Pictures {
    /// Makes the folder, before hours are spent on pictures that could not be stored.
    pub(super) fn into(folder: &Path) -> Result<Self, Wrong> {
        make_folder(folder)?;
        Ok(Self(folder.to_owned()))
    }

    pub(super) fn timeline(&self, score: &Score, svg: &str) -> Result<(), Wrong> {
        let name = format!("{}--{}", score.scenario, score.law);
        self.keep(&name, svg)
    }

    pub(super) fn field(
        &self,
        set: &str,
        summaries: &[Summary],
        ours: &[&str],
    ) -> Result<(), Wrong> {
        let stem = Path::new(set).file_stem();
        let set = stem.map_or(set.into(), |stem| stem.to_string_lossy());
        self.keep(&set, &plot::field(&set, summaries, ours))
    }

    #[cfg(feature = "rivals")]
    pub(super) fn study(&self, rows: &[Row]) -> Result<(), Wrong> {
        self.keep("backoff", &plot::study(rows))
    }

    fn keep(&self, name: &str, svg: &str) -> Result<(), Wrong> {
        let path = self.0.join(format!("{}.svg", file_name(name)));
        fs::write(&path, svg).map_err(|why| Wrong::file(&path, &why))
    }
}

/// Returns a file name for a scenario's name, which may contain any character.
fn file_name(name: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = (name.chars().map(|c| if safe(c) { c } else { '-' }))
        .take(200)
        .collect();
    // The result is neither a hidden file nor a path to a parent folder.
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(file_name("../a b/c--aimd"), "-a-b-c--aimd");
        assert_eq!(file_name("steps 1.5→3"), "steps-1.5-3");
    }
}
