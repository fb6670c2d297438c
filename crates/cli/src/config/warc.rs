//! The settings of the archive of a run.

use std::path::{Path, PathBuf};

use super::Knobs;

/// The default of `warc-size`, as most crawlers have it.
const SIZE_DEFAULT: u64 = 1 << 30;

/// The place of an archive, and the size of its files.
#[derive(Clone, Debug)]
pub(crate) struct WarcSettings {
    path: PathBuf,
    /// The size from which on a file is followed by another one.
    pub(crate) size_max: u64,
}

impl WarcSettings {
    pub(super) fn checked(knobs: &mut Knobs) -> Result<Option<Self>, String> {
        let size = knobs.warc_size.map(|size| size.0);
        match knobs.warc.take() {
            None if size.is_some() => Err("--warc-size has an effect only with --warc".to_owned()),
            Some(path) if path.file_name().is_none() => Err(format!(
                "--warc {}: must end with the name of a file",
                path.display()
            )),
            path => Ok(path.map(|path| Self {
                path,
                size_max: size.unwrap_or(SIZE_DEFAULT),
            })),
        }
    }

    /// Returns the folder of the files.
    pub(crate) fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Returns the file of a number: `crawl-00003.warc.gz` of `crawl.warc.gz`.
    pub(crate) fn file(&self, number: u32) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.strip_suffix(".warc").unwrap_or(stem);
        self.path
            .with_file_name(format!("{stem}-{number:05}.warc.gz"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_number_before_its_ending() {
        for (given, file, folder) in [
            ("x/crawl.warc.gz", "x/crawl-00012.warc.gz", "x"),
            ("x/crawl.warc", "x/crawl-00012.warc.gz", "x"),
            ("crawl", "crawl-00012.warc.gz", "."),
        ] {
            let warc = WarcSettings {
                path: given.into(),
                size_max: 1,
            };
            assert_eq!(
                (warc.file(12), warc.folder()),
                (file.into(), Path::new(folder))
            );
        }
    }
}
