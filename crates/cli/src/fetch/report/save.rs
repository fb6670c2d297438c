//! Bodies under `--save DIR`: `DIR/host/readable-name.hash.extension`.
//!
//! A body is written to a file in `DIR/.parts` first, and gets its name when it is whole. What a
//! killed process left there is removed by the next one.
//!
//! A URL comes from a stranger, so it is never used as a file name directly. Every byte outside a
//! small set becomes `_`, the length is bounded, and no name begins with a dot. A hash of the whole
//! URL keeps two URLs from one name. The host's port is separated with `_`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use url::Url;

use super::extension::extension;

/// The folder of unfinished bodies. No host has this name, because no name begins with a dot.
const PARTS: &str = ".parts";

/// A body being written to a temporary file.
pub(crate) struct Saving {
    file: File,
    part: PathBuf,
    path: PathBuf,
    whole: bool,
}

/// Distinguishes the temporary files of a page that is fetched twice at a time: given twice, or
/// redirected to.
static BEGUN: AtomicU64 = AtomicU64::new(0);

impl Saving {
    /// Creates the file for the body of an answer of `url`, with `headers`, below `dir`. `request`
    /// is the number of a request that is not a GET without a body.
    pub(crate) fn begin(
        dir: &Path,
        url: &Url,
        headers: &HeaderMap,
        request: Option<u128>,
    ) -> io::Result<Self> {
        let path = place(dir, url, headers, request);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let (process, number) = (std::process::id(), BEGUN.fetch_add(1, Ordering::Relaxed));
        let part = dir.join(PARTS).join(format!("{process}-{number}"));
        let file = match File::create(&part) {
            // The first body makes the folder, unless the folder of another run is there.
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(dir.join(PARTS))?;
                File::create(&part)?
            }
            created => created?,
        };
        Ok(Self {
            file,
            part,
            path,
            whole: false,
        })
    }

    /// Returns the final name of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)
    }

    /// Renames the file to its final name, since the body is whole.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        fs::rename(&self.part, &self.path)?;
        self.whole = true;
        Ok(())
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Returns the file that tells whether there is room below `dir`.
///
/// # Errors
/// Its folder cannot be created.
pub(crate) fn probe_file(dir: &Path) -> io::Result<PathBuf> {
    let parts = dir.join(PARTS);
    fs::create_dir_all(&parts)?;
    Ok(parts.join(format!("{}-room", std::process::id())))
}

/// Removes the unfinished bodies of processes that ended, and the folder for them if it is empty.
pub(crate) fn remove_remains(dir: &Path) {
    let parts = dir.join(PARTS);
    let Ok(files) = fs::read_dir(&parts) else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let process = name.to_str().and_then(|name| name.split('-').next());
        let process = process.and_then(|number| Pid::from_raw(number.parse().ok()?));
        // Another run may save into the same folder.
        let is_gone = |process| test_kill_process(process) == Err(Errno::SRCH);
        let is_running = process.is_some_and(|process| !is_gone(process));
        if !is_running || process == Some(getpid()) {
            let _ = fs::remove_file(file.path());
        }
    }
    let _ = fs::remove_dir(&parts);
}

/// Returns the path for a body. The arguments are those of [`Saving::begin`].
fn place(dir: &Path, url: &Url, headers: &HeaderMap, request: Option<u128>) -> PathBuf {
    const READABLE_MAX: usize = 100;
    let mut host = harmless(url.host_str().unwrap_or("_"), 200);
    if let Some(port) = url.port() {
        host.push('_');
        host.push_str(&port.to_string());
    }
    let path = url.path().trim_matches('/');
    let extension = extension(url, headers);
    let path = match &extension {
        Some(extension) => without_extension(path, extension),
        None => path,
    };
    let mut name = harmless(if path.is_empty() { "index" } else { path }, READABLE_MAX);
    // Writing to a `String` cannot fail.
    let _ = write!(name, ".{:016x}", hash(url.as_str().as_bytes()));
    if let Some(request) = request {
        let _ = write!(name, ".{request:032x}");
    }
    if let Some(extension) = extension {
        let _ = write!(name, ".{extension}");
    }
    dir.join(host).join(name)
}

/// Returns a path without its extension, if that is `extension`.
fn without_extension<'a>(path: &'a str, extension: &str) -> &'a str {
    match path.rsplit_once('.') {
        Some((stem, last)) if last.eq_ignore_ascii_case(extension) => stem,
        _ => path,
    }
}

/// Returns `text` with only letters, digits, `-`, `_` and inner dots, at most `max` bytes.
fn harmless(text: &str, max: usize) -> String {
    let mut name: String = text
        .bytes()
        .take(max)
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                byte as char
            } else {
                '_'
            }
        })
        .collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
}

/// Returns the FNV-1a hash of 64 bits, which is the same in every run and version.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(url: &str) -> PathBuf {
        place(
            Path::new("/save"),
            &Url::parse(url).unwrap(),
            &HeaderMap::new(),
            None,
        )
    }

    #[test]
    fn names_are_readable_and_differ() {
        let page = placed("http://a.example/x/y.html");
        assert_eq!(page.extension().unwrap(), "html");
        let page = page.to_str().unwrap();
        assert!(page.starts_with("/save/a.example/x_y.") && !page.contains(".html."));
        assert!(
            placed("http://a.example:8080/")
                .to_str()
                .unwrap()
                .starts_with("/save/a.example_8080/index.")
        );
        assert_ne!(placed("http://a/x?1"), placed("http://a/x?2"));
        assert_ne!(placed("http://a/x/y"), placed("http://a/x_y"));
    }

    #[test]
    fn an_unfinished_body_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let url = Url::parse("http://a/x").unwrap();
        let mut saving = Saving::begin(dir.path(), &url, &HeaderMap::new(), None).unwrap();
        saving.push(b"half").unwrap();
        drop(saving);
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(dir.path().join(PARTS)).unwrap().count(), 0);
        let mut saving = Saving::begin(dir.path(), &url, &HeaderMap::new(), None).unwrap();
        saving.push(b"whole").unwrap();
        saving.finish().unwrap();
        assert_eq!(
            fs::read_to_string(place(dir.path(), &url, &HeaderMap::new(), None)).unwrap(),
            "whole"
        );
    }

    #[test]
    fn remains_of_ended_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join(PARTS);
        remove_remains(dir.path());
        fs::create_dir(&parts).unwrap();
        // The first process of the system runs. No process has the largest number.
        for name in ["1-7", "2147483647-0", "no-number"] {
            fs::write(parts.join(name), "half").unwrap();
        }
        remove_remains(dir.path());
        let left: Vec<_> = fs::read_dir(&parts).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "1-7");
        fs::remove_file(parts.join("1-7")).unwrap();
        remove_remains(dir.path());
        assert!(!parts.exists());
    }

    #[test]
    fn a_page_fetched_twice_at_a_time_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let url = Url::parse("http://a/x").unwrap();
        let [mut one, mut other, failing] =
            [(); 3].map(|()| Saving::begin(dir.path(), &url, &HeaderMap::new(), None).unwrap());
        one.push(b"first, ").unwrap();
        other.push(b"second").unwrap();
        drop(failing);
        one.push(b"whole").unwrap();
        one.finish().unwrap();
        let saved =
            || fs::read_to_string(place(dir.path(), &url, &HeaderMap::new(), None)).unwrap();
        assert_eq!(saved(), "first, whole");
        other.finish().unwrap();
        assert_eq!(saved(), "second");
    }

    proptest! {
        #[test]
        fn no_url_leaves_the_folder(host in "[a-z0-9.%\\[\\]:-]{1,30}", path in "\\PC{0,300}") {
            if let Ok(url) = Url::parse(&format!("http://{host}/{path}")) {
                let place = place(Path::new("/save"), &url, &HeaderMap::new(), None);
                let parts: Vec<_> = place.strip_prefix("/save").unwrap().components().collect();
                prop_assert_eq!(parts.len(), 2);
                for part in parts {
                    let std::path::Component::Normal(name) = part else { panic!("{place:?}") };
                    prop_assert!(name.len() < 255 && !name.to_str().unwrap().starts_with('.'));
                }
            }
        }
    }
}
