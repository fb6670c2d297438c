//! The result lines, one per page.
//!
//! Without `--state`, lines gather in a buffer. With it, each line is one `write` of the whole line
//! before the page is recorded as finished, under one lock. So a kill leaves at most one line whose
//! page is not finished. It is fetched again, so that line is cut when the run continues.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::form::{Form, LineOfPage};
use super::last_answer::LastAnswer;
use super::page_fields::RowOfPage;
use crate::exit::{Wrong, io_words, is_no_room};

/// The result of a URL.
#[derive(Debug, Default, Serialize)]
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
    /// The number of the run in its state folder, from the second one on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<u32>,
    #[serde(flatten)]
    pub(crate) page: RowOfPage<'a>,
    /// The fields about the last answer, if there was one.
    #[serde(flatten)]
    pub(crate) answer: Option<&'a LastAnswer>,
}

impl Row<'_> {
    /// Returns the row as a line of JSON.
    pub(crate) fn line(&self) -> Vec<u8> {
        // Writing to memory does not fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The result of writing a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// The row could not be written. Standard error says so once.
    Lost,
    /// There is no room for the row. What is left to write of it, if it is to be recorded; else it
    /// stays in the buffer.
    Full(Vec<u8>),
    /// The page could not be recorded as finished. What is left to write of its row, which was
    /// taken back, and the reason.
    Unrecorded(Vec<u8>, String),
    /// The reader closed the pipe, which means that it wants no more.
    Closed,
}

/// The destination of result lines.
pub(crate) struct Output {
    form: Form,
    inner: Mutex<Inner>,
}

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
    closed: bool,
}

enum Sink {
    Nowhere,
    /// Its file may have lines of others, so nothing is cut.
    Stdout(File),
    File(File),
}

/// The buffer is large enough that a write costs almost nothing per line.
const BUFFER: usize = 64 * 1024;

impl Output {
    /// Returns an output that writes to standard output, without a buffer on a terminal.
    pub(crate) fn stdout() -> Self {
        let flush_at = if io::stdout().is_terminal() {
            0
        } else {
            BUFFER
        };
        // `std::io::Stdout` has a buffer of its own, which keeps what could not be written.
        let sink = io::stdout().as_fd().try_clone_to_owned();
        let sink = sink.map_or(Sink::Nowhere, |fd| Sink::Stdout(fd.into()));
        Self::new(sink, Form::Json, "standard output".to_owned(), 0, flush_at)
    }

    /// Returns an output that writes to the file at `path`. With `is_open` it continues a run and
    /// appends, else it empties the file first. `is_open` returns whether the page of a line is not
    /// finished yet.
    pub(crate) fn file(
        path: &Path,
        form: Form,
        is_open: Option<impl FnOnce(&LineOfPage) -> bool>,
    ) -> Result<Self, Wrong> {
        let wrong = |why: io::Error| Wrong::file(path, &why);
        let mut open = OpenOptions::new();
        let mut file = open
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(wrong)?;
        let regular = file.metadata().map_err(wrong)?.is_file();
        let mut len = 0;
        if regular {
            match is_open {
                Some(is_open) => len = cut_unrecorded(&file, &form, is_open).map_err(wrong)?,
                None => file.set_len(0).map_err(wrong)?,
            }
        }
        if let Some(head) = form.head() {
            if len == 0 {
                file.write_all(&head).map_err(wrong)?;
                len = head.len() as u64;
            } else if !begins_with(&file, &head).map_err(wrong)? {
                let path = path.display();
                return Err(Wrong(format!(
                    "--output {path}: has other columns; give another file"
                )));
            }
        }
        Ok(Self::new(
            Sink::File(file),
            form,
            path.display().to_string(),
            len,
            BUFFER,
        ))
    }

    fn new(sink: Sink, form: Form, name: String, len: u64, flush_at: usize) -> Self {
        let inner = Mutex::new(Inner {
            sink,
            name,
            buffer: Vec::new(),
            len,
            flush_at,
            lines_buffered: 0,
            lost: 0,
            closed: false,
        });
        Self { form, inner }
    }

    /// Writes `line`, the line of a row. With `record`, it is written at once, and then recorded as
    /// finished.
    pub(crate) fn write(
        &self,
        line: &[u8],
        record: Option<impl FnOnce() -> Result<(), String>>,
    ) -> Written {
        let mut inner = self.lock();
        if !matches!(inner.sink, Sink::Nowhere) && !line.is_empty() {
            inner.buffer.extend_from_slice(line);
            inner.lines_buffered += 1;
        }
        let before = inner.len;
        let Some(record) = record else {
            return if inner.buffer.len() > inner.flush_at {
                inner.flush()
            } else {
                Written::Yes
            };
        };
        match inner.flush() {
            Written::Yes => {}
            Written::Full(_) => {
                inner.lines_buffered = 0;
                return Written::Full(std::mem::take(&mut inner.buffer));
            }
            other => return other,
        }
        match record() {
            Ok(()) => Written::Yes,
            Err(why) if inner.take_back(before) => Written::Unrecorded(line.to_vec(), why),
            Err(why) => Written::Unrecorded(Vec::new(), why),
        }
    }

    /// Returns the line of a row.
    pub(crate) fn line(&self, row: &Row<'_>) -> Vec<u8> {
        self.form.line(row)
    }

    /// Writes the buffered lines. Returns whether that succeeded.
    pub(crate) fn flush(&self) -> Written {
        self.lock().flush()
    }

    /// Returns the number of lines that are not written, and the name of the output.
    pub(crate) fn lost(&self) -> Option<(u64, String)> {
        let inner = self.lock();
        let lost = inner.lost + inner.lines_buffered;
        (lost > 0).then(|| (lost, inner.name.clone()))
    }

    /// Returns the URLs of the lines that are in the buffer.
    pub(crate) fn unwritten(&self) -> Vec<String> {
        let inner = self.lock();
        let lines = inner.buffer.split(|byte| *byte == b'\n');
        let url = |line| Some(self.form.page_of(line)?.url);
        lines.filter_map(url).collect()
    }

    /// Returns the name in messages.
    pub(crate) fn name(&self) -> String {
        self.lock().name.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (mut file, is_own) = match &self.sink {
            Sink::Nowhere => {
                self.buffer.clear();
                return Written::Yes;
            }
            Sink::Stdout(file) => (file, false),
            Sink::File(file) => (file, true),
        };
        let mut written = 0;
        let done = loop {
            match file.write(&self.buffer[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => break Err(why),
            }
            if written == self.buffer.len() {
                break Ok(());
            }
        };
        let result = match done {
            Ok(()) => {
                self.len += written as u64;
                Written::Yes
            }
            Err(why) if is_no_room(&why) => {
                // Half a line would spoil the next one, unless its other half follows.
                if !(is_own && self.take_back(self.len)) {
                    self.buffer.drain(..written);
                }
                return Written::Full(Vec::new());
            }
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Written::Closed
            }
            Err(why) => {
                self.take_back(self.len);
                let name = self.name.clone();
                self.complain(&name, &why);
                self.lost += self.lines_buffered;
                Written::Lost
            }
        };
        self.lines_buffered = 0;
        self.buffer.clear();
        result
    }

    /// Cuts a file of results to `len` bytes. Returns whether that succeeded.
    fn take_back(&mut self, len: u64) -> bool {
        let Sink::File(file) = &self.sink else {
            return false;
        };
        let is_cut =
            file.metadata().is_ok_and(|found| found.is_file()) && file.set_len(len).is_ok();
        if is_cut {
            self.len = len;
        }
        is_cut
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
fn cut_unrecorded(
    file: &File,
    form: &Form,
    is_open: impl FnOnce(&LineOfPage) -> bool,
) -> io::Result<u64> {
    let len = cut_after_newline(file, file.metadata()?.len())?;
    let Some(last) = len.checked_sub(1) else {
        return Ok(0);
    };
    let start = end_of_lines(file, last)?;
    let mut line = vec![0; (last - start) as usize];
    file.read_exact_at(&mut line, start)?;
    match form.page_of(&line) {
        Some(page) if is_open(&page) => cut_after_newline(file, last),
        _ => Ok(len),
    }
}

/// Returns whether a file begins with `head`.
fn begins_with(file: &File, head: &[u8]) -> io::Result<bool> {
    let mut first = vec![0; head.len()];
    match file.read_exact_at(&mut first, 0) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| first == head),
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
            bytes: 5,
            latency_ms: 1,
            saved: Some("pages/a".into()),
            ..Row::default()
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
        let output = Output::file(&results, Form::Json, Some(|_: &LineOfPage| true)).unwrap();
        for url in ["http://a/1", "http://a/2"] {
            assert_eq!(
                output.write(&row(url).line(), Some(|| Ok(()))),
                Written::Yes
            );
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
            let is_open = |page: &LineOfPage| page.url == "http://a/3";
            Output::file(&results, Form::Json, Some(is_open)).unwrap();
            assert_eq!(std::fs::read_to_string(&results).unwrap(), whole);
        }
    }

    #[test]
    fn a_page_that_cannot_be_recorded_has_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r.jsonl");
        let output = Output::file(&results, Form::Json, None::<fn(&LineOfPage) -> bool>).unwrap();
        let full = || Err("no space left on device".to_owned());
        let line = row("http://a/1").line();
        assert_eq!(
            output.write(&line, Some(full)),
            Written::Unrecorded(line.clone(), "no space left on device".to_owned())
        );
        assert_eq!(std::fs::read_to_string(&results).unwrap(), "");
    }

    #[test]
    fn lines_for_a_full_disk_stay_and_are_counted() {
        let output = Output::file(
            Path::new("/dev/full"),
            Form::Json,
            None::<fn(&LineOfPage) -> bool>,
        )
        .unwrap();
        let line = row("http://a/").line();
        let written = output.write(&line, None::<Unrecorded>);
        assert_eq!(written, Written::Yes, "gathered");
        assert_eq!(output.flush(), Written::Full(Vec::new()));
        assert_eq!(output.lost(), Some((1, "/dev/full".to_owned())));
        assert_eq!(output.unwritten(), ["http://a/"]);
    }

    #[test]
    fn a_line_to_record_is_given_back_by_a_full_disk() {
        let output = Output::file(
            Path::new("/dev/full"),
            Form::Json,
            None::<fn(&LineOfPage) -> bool>,
        )
        .unwrap();
        let line = row("http://a/").line();
        let record = || panic!("its line is not written");
        assert_eq!(output.write(&line, Some(record)), Written::Full(line));
        assert_eq!(output.lost(), None, "the caller has it");
    }
}
