//! The result lines, one JSON object per page.
//!
//! Without `--state`, lines gather in a buffer. With it, each line is one `write` of the whole line
//! before the page is recorded as finished, under one lock. So a kill leaves at most one line whose
//! page is not finished. It is fetched again, so that line is cut when the run continues.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::exit::{Wrong, io_words};

/// The result of a URL.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    /// The URL as it was given.
    pub(crate) url: &'a str,
    /// The key it was fetched under, at the last hop.
    pub(crate) key: &'a str,
    pub(crate) status: Option<u16>,
    pub(crate) attempts: u32,
    pub(crate) refused: u32,
    /// The size of the last body, decoded.
    pub(crate) bytes: u64,
    /// Time at the head of the host's queue without a permit, over all attempts.
    pub(crate) wait_ms: u64,
    /// Time from the last request to the head of its answer.
    pub(crate) latency_ms: u64,
    /// The file of the body, only with `--save`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saved: Option<PathBuf>,
    pub(crate) error: Option<&'a str>,
}

/// The result of writing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// The row could not be written. Standard error says so once.
    Lost,
    /// The page could not be recorded as finished, so its row was taken back.
    Unrecorded,
    /// The reader closed the pipe, which means that it wants no more.
    Closed,
}

/// The destination of result lines.
pub(crate) struct Output(Mutex<Inner>);

struct Inner {
    sink: Sink,
    /// The name in error messages.
    name: String,
    buffer: Vec<u8>,
    /// The length of the file up to the last whole line, in bytes.
    len: u64,
    flush_at: usize,
    lines_buffered: u64,
    lost: u64,
    /// Why a page could not be recorded as finished.
    unrecorded: Option<String>,
    closed: bool,
}

enum Sink {
    Nowhere,
    Stdout,
    File(File),
}

/// The buffer is large enough that a write costs almost nothing per line.
const BUFFER: usize = 64 * 1024;

impl Output {
    /// Returns an output that drops all lines (`--summary json` alone).
    pub(crate) fn nowhere() -> Self {
        Self::new(Sink::Nowhere, String::new(), 0, usize::MAX)
    }

    /// Returns an output that writes to standard output, without a buffer on a terminal.
    pub(crate) fn stdout() -> Self {
        let flush_at = if io::stdout().is_terminal() {
            0
        } else {
            BUFFER
        };
        Self::new(Sink::Stdout, "standard output".to_owned(), 0, flush_at)
    }

    /// Returns an output that writes to the file at `path`. With `is_open` it continues a run and
    /// appends, else it empties the file first. `is_open` returns whether the page of a URL is not
    /// finished yet.
    pub(crate) fn file(
        path: &Path,
        is_open: Option<impl FnOnce(&str) -> bool>,
    ) -> Result<Self, Wrong> {
        let wrong = |why: io::Error| Wrong::file(path, &why);
        let mut open = OpenOptions::new();
        let file = open
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(wrong)?;
        let regular = file.metadata().map_err(wrong)?.is_file();
        let mut len = 0;
        if regular {
            match is_open {
                Some(is_open) => len = cut_unrecorded(&file, is_open).map_err(wrong)?,
                None => file.set_len(0).map_err(wrong)?,
            }
        }
        Ok(Self::new(
            Sink::File(file),
            path.display().to_string(),
            len,
            BUFFER,
        ))
    }

    fn new(sink: Sink, name: String, len: u64, flush_at: usize) -> Self {
        Self(Mutex::new(Inner {
            sink,
            name,
            buffer: Vec::new(),
            len,
            flush_at,
            lines_buffered: 0,
            lost: 0,
            unrecorded: None,
            closed: false,
        }))
    }

    /// Writes `row`. With `record`, it is written at once, and then recorded as finished.
    pub(crate) fn write(
        &self,
        row: &Row<'_>,
        record: Option<impl FnOnce() -> Result<(), String>>,
    ) -> Written {
        let mut inner = self.lock();
        if !matches!(inner.sink, Sink::Nowhere) {
            if serde_json::to_writer(&mut inner.buffer, row).is_err() {
                return Written::Lost; // writing to memory does not fail
            }
            inner.buffer.push(b'\n');
            inner.lines_buffered += 1;
        }
        let before = inner.len;
        if inner.buffer.len() > inner.flush_at || record.is_some() {
            let written = inner.flush();
            if written != Written::Yes {
                return written;
            }
        }
        match record.map(|record| record()) {
            Some(Err(why)) => {
                inner.unrecorded = Some(why);
                inner.take_back(before);
                Written::Unrecorded
            }
            _ => Written::Yes,
        }
    }

    /// Writes the buffered lines. Returns whether that succeeded.
    pub(crate) fn flush(&self) -> Written {
        self.lock().flush()
    }

    /// Returns why a page could not be recorded as finished, if so.
    pub(crate) fn unrecorded(&self) -> Option<String> {
        self.lock().unrecorded.clone()
    }

    /// Returns the number of lines that could not be written, and the name of the output.
    pub(crate) fn lost(&self) -> Option<(u64, String)> {
        let inner = self.lock();
        (inner.lost > 0).then(|| (inner.lost, inner.name.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn flush(&mut self) -> Written {
        if self.buffer.is_empty() {
            return if self.closed {
                Written::Closed
            } else {
                Written::Yes
            };
        }
        let done = match &mut self.sink {
            Sink::Nowhere => Ok(()),
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&self.buffer).and_then(|()| out.flush())
            }
            Sink::File(file) => file.write_all(&self.buffer),
        };
        let lines = std::mem::take(&mut self.lines_buffered);
        let result = match done {
            Ok(()) => {
                self.len += self.buffer.len() as u64;
                Written::Yes
            }
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Written::Closed
            }
            Err(why) => {
                // Half a line would spoil the next one.
                self.take_back(self.len);
                let name = self.name.clone();
                self.complain(&name, &why);
                self.lost += lines;
                Written::Lost
            }
        };
        self.buffer.clear();
        result
    }

    /// Cuts a file of results to `len` bytes.
    fn take_back(&mut self, len: u64) {
        if let Sink::File(file) = &self.sink
            && file.metadata().is_ok_and(|found| found.is_file())
            && file.set_len(len).is_ok()
        {
            self.len = len;
        }
    }

    /// Reports the error once per run, since a full disk would repeat it for every URL.
    fn complain(&mut self, name: &str, why: &io::Error) {
        if self.lost == 0 {
            crate::log::say(&format!(
                "error: {name}: {}; the run goes on, these results are not kept",
                io_words(why)
            ));
        }
    }
}

/// Cuts a torn line, and the last whole line if its page is not finished. Returns the length that
/// is left.
fn cut_unrecorded(file: &File, is_open: impl FnOnce(&str) -> bool) -> io::Result<u64> {
    #[derive(Deserialize)]
    struct Written {
        url: String,
    }
    let len = cut_after_newline(file, file.metadata()?.len())?;
    let Some(last) = len.checked_sub(1) else {
        return Ok(0);
    };
    let start = end_of_lines(file, last)?;
    let mut line = vec![0; (last - start) as usize];
    file.read_exact_at(&mut line, start)?;
    match serde_json::from_slice::<Written>(&line) {
        Ok(line) if is_open(&line.url) => cut_after_newline(file, last),
        _ => Ok(len),
    }
}

/// Cuts the bytes from `len` back to the newline before it. Returns the length that is left.
fn cut_after_newline(file: &File, len: u64) -> io::Result<u64> {
    let end = end_of_lines(file, len)?;
    file.set_len(end)?;
    Ok(end)
}

/// Returns the place after the last newline among the first `len` bytes of a file.
fn end_of_lines(file: &File, len: u64) -> io::Result<u64> {
    let mut end = len;
    let mut block = vec![0; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.read_exact_at(part, start)?;
        if let Some(newline) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(url: &str) -> Row<'_> {
        Row {
            url,
            key: "a",
            status: Some(200),
            attempts: 1,
            refused: 0,
            bytes: 5,
            wait_ms: 0,
            latency_ms: 1,
            saved: Some("pages/a".into()),
            error: None,
        }
    }

    #[test]
    fn the_fields_are_the_documented_ones() {
        let line = serde_json::to_string(&row("http://a/")).unwrap();
        let names = [
            "url",
            "key",
            "status",
            "attempts",
            "refused",
            "bytes",
            "wait_ms",
            "latency_ms",
            "saved",
            "error",
        ];
        let at: Vec<usize> = names
            .iter()
            .map(|name| line.find(&format!("\"{name}\":")).unwrap())
            .collect();
        assert!(at.is_sorted(), "{line}");
    }

    type Unrecorded = fn() -> Result<(), String>;

    #[test]
    fn a_torn_line_and_a_line_of_an_open_page_are_cut_on_resume() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r.jsonl");
        let output = Output::file(&results, Some(|_: &str| true)).unwrap();
        for url in ["http://a/1", "http://a/2"] {
            assert_eq!(output.write(&row(url), Some(|| Ok(()))), Written::Yes);
        }
        drop(output);
        let whole = std::fs::read_to_string(&results).unwrap();
        let long = format!(
            "{{\"url\":\"http://a/3\",\"x\":\"{}\"}}\n",
            "x".repeat(10_000)
        );
        for tail in [
            "",
            "{\"url\":",
            &long,
            &format!("{long}{{\"u"),
            &"x".repeat(5_000),
        ] {
            std::fs::write(&results, format!("{whole}{tail}")).unwrap();
            let is_open = |url: &str| url == "http://a/3";
            Output::file(&results, Some(is_open)).unwrap();
            assert_eq!(std::fs::read_to_string(&results).unwrap(), whole);
        }
    }

    #[test]
    fn a_page_that_cannot_be_recorded_has_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r.jsonl");
        let output = Output::file(&results, None::<fn(&str) -> bool>).unwrap();
        let full = || Err("no space left on device".to_owned());
        assert_eq!(
            output.write(&row("http://a/1"), Some(full)),
            Written::Unrecorded
        );
        assert_eq!(
            output.unrecorded().as_deref(),
            Some("no space left on device")
        );
        assert_eq!(std::fs::read_to_string(&results).unwrap(), "");
    }

    #[test]
    fn a_full_disk_loses_lines_and_counts_them() {
        let output = Output::file(Path::new("/dev/full"), None::<fn(&str) -> bool>).unwrap();
        let written = output.write(&row("http://a/"), None::<Unrecorded>);
        assert_eq!(written, Written::Yes, "gathered");
        assert_eq!(output.flush(), Written::Lost);
        assert_eq!(output.lost(), Some((1, "/dev/full".to_owned())));
    }
}
