//! The result lines, one JSON object per URL, and the journal of those that are written.
//!
//! Without `--state`, lines gather in a buffer. With it, each line is one `write` of the whole line
//! before its journal record, under one lock. So a kill leaves at most one line without a record.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::exit::{Wrong, io_words};
use crate::fetch::input::spool::cut_torn_line;
use crate::fetch::state::journal::{Finished, Journal};

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
    /// The row is written, but the journal does not record that the URL is finished.
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
    journal: Option<Journal>,
    flush_at: usize,
    lines_buffered: u64,
    lost: u64,
    /// Why the journal could not be written.
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

    /// Returns an output that writes to the file at `path`. On resume it appends, else it empties
    /// the file first.
    pub(crate) fn file(path: &Path, resumed: Option<&Finished>) -> Result<Self, Wrong> {
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
            match resumed {
                Some(finished) => len = cut_unrecorded(&file, finished).map_err(wrong)?,
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
            journal: None,
            flush_at,
            lines_buffered: 0,
            lost: 0,
            unrecorded: None,
            closed: false,
        }))
    }

    /// Writes each line at once from now on, and records it in `journal`.
    pub(crate) fn journaled(self, journal: Journal) -> Self {
        {
            let mut inner = self.lock();
            inner.journal = Some(journal);
            inner.flush_at = 0;
        }
        self
    }

    /// Writes `row` for the URL at spool offset `offset`.
    pub(crate) fn write(&self, offset: u64, row: &Row<'_>) -> Written {
        let mut inner = self.lock();
        if !matches!(inner.sink, Sink::Nowhere) {
            if serde_json::to_writer(&mut inner.buffer, row).is_err() {
                return Written::Lost; // writing to memory does not fail
            }
            inner.buffer.push(b'\n');
            inner.lines_buffered += 1;
        }
        let before = inner.len;
        if inner.buffer.len() > inner.flush_at || inner.journal.is_some() {
            let written = inner.flush();
            if written != Written::Yes {
                return written;
            }
        }
        let len = inner.len;
        let failed = row.error.is_some();
        match inner
            .journal
            .as_mut()
            .map(|journal| journal.record(offset, len, failed))
        {
            Some(Err(why)) => {
                inner.unrecorded = Some(io_words(&why));
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

    /// Returns why the journal could not be written, if so.
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

/// Cuts a torn line, and the one whole line that may follow the last recorded one. Returns the
/// length that is left.
///
/// More than one line beyond the record means that the journal belongs to another file. Then only
/// the torn line is cut.
fn cut_unrecorded(file: &File, finished: &Finished) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;

    let len = cut_torn_line(file)?;
    let recorded = finished.results_len;
    if finished.len() > 0 && recorded < len && len - recorded <= BUFFER as u64 * 4 {
        let mut tail = vec![0; (len - recorded) as usize];
        file.read_exact_at(&mut tail, recorded)?;
        if tail.split(|&byte| byte == b'\n').count() == 2 {
            file.set_len(recorded)?;
            return Ok(recorded);
        }
    }
    Ok(len)
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

    #[test]
    fn a_line_without_its_record_is_cut_on_resume() {
        let dir = tempfile::tempdir().unwrap();
        let (results, log) = (dir.path().join("r.jsonl"), dir.path().join("done.log"));
        let (journal, finished) = Journal::open(&log).unwrap();
        let output = Output::file(&results, Some(&finished))
            .unwrap()
            .journaled(journal);
        assert_eq!(output.write(0, &row("http://a/1")), Written::Yes);
        assert_eq!(output.write(9, &row("http://a/2")), Written::Yes);
        drop(output);
        let whole = std::fs::read_to_string(&results).unwrap();
        for tail in [
            "{\"url\":",
            "{\"url\":\"http://a/3\"}\n",
            "{\"url\":\"http://a/3\"}\n{\"u",
        ] {
            std::fs::write(&results, format!("{whole}{tail}")).unwrap();
            let (_, finished) = Journal::open(&log).unwrap();
            Output::file(&results, Some(&finished)).unwrap();
            assert_eq!(std::fs::read_to_string(&results).unwrap(), whole);
        }
        // The lines of another file must not be cut.
        std::fs::write(&results, format!("{whole}{{}}\n{{}}\n")).unwrap();
        let (_, finished) = Journal::open(&log).unwrap();
        Output::file(&results, Some(&finished)).unwrap();
        assert_eq!(
            std::fs::read_to_string(&results).unwrap().lines().count(),
            4
        );
    }

    #[test]
    fn a_full_disk_loses_lines_and_counts_them() {
        let output = Output::file(Path::new("/dev/full"), None).unwrap();
        assert_eq!(output.write(0, &row("http://a/")), Written::Yes, "gathered");
        assert_eq!(output.flush(), Written::Lost);
        assert_eq!(output.lost(), Some((1, "/dev/full".to_owned())));
    }
}
