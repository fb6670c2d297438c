//! The spool: a copy of the input on disk, line by line. So a queued URL takes eight bytes of
//! memory: its offset here.
//!
//! Line n of the spool is line n of the input, whatever it contains. So an interrupted input is
//! easy to continue: a resumed run skips as many lines as the spool already has.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::lines::LINE_MAX;

/// Reads lines at their offsets. All workers share it.
#[derive(Clone, Debug)]
pub(crate) struct Spool(Arc<File>);

/// Appends lines. It has one owner.
pub(crate) struct SpoolWriter {
    out: BufWriter<File>,
    len: u64,
}

/// The size of the first read. Most URLs fit, and a longer one costs a second read.
const FIRST_READ: usize = 512;

/// Returns a spool in a file without a name, which disappears with the process.
pub(crate) fn unnamed() -> io::Result<(Spool, SpoolWriter)> {
    pair(tempfile::tempfile()?)
}

/// Opens or makes the spool at `path`. If the process died while it wrote the last line, that line
/// has no end and is cut off.
pub(crate) fn at(path: &Path) -> io::Result<(Spool, SpoolWriter)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    cut_torn_line(&file)?;
    pair(file)
}

fn pair(file: File) -> io::Result<(Spool, SpoolWriter)> {
    let mut writer = file.try_clone()?;
    let len = writer.seek(SeekFrom::End(0))?;
    Ok((
        Spool(Arc::new(file)),
        SpoolWriter {
            out: BufWriter::with_capacity(256 * 1024, writer),
            len,
        },
    ))
}

/// Cuts the bytes after the last newline of `file`. Returns the length that is left.
pub(crate) fn cut_torn_line(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let mut end = len;
    let mut block = vec![0; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.read_exact_at(part, start)?;
        if let Some(newline) = part.iter().rposition(|&byte| byte == b'\n') {
            end = start + newline as u64 + 1;
            break;
        }
        end = start;
    }
    if end < len {
        file.set_len(end)?;
    }
    Ok(end)
}

impl Spool {
    /// Reads the line at `offset` into `line`, without its end.
    pub(crate) fn read(&self, offset: u64, line: &mut Vec<u8>) -> io::Result<()> {
        line.clear();
        let mut want = FIRST_READ;
        loop {
            let have = line.len();
            line.resize(have + want, 0);
            let read = match self.0.read_at(&mut line[have..], offset + have as u64) {
                Err(again) if again.kind() == io::ErrorKind::Interrupted => 0,
                other => other?,
            };
            line.truncate(have + read);
            if let Some(newline) = line[have..].iter().position(|&byte| byte == b'\n') {
                line.truncate(have + newline);
                return Ok(());
            }
            if read == 0 || line.len() > LINE_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            want = (want * 4).min(LINE_MAX);
        }
    }

    /// Calls `each` for every line with its offset, in order, from the beginning.
    pub(crate) fn scan(&self, mut each: impl FnMut(u64, &[u8])) -> io::Result<u64> {
        let mut reader = BufReader::with_capacity(256 * 1024, self.0.try_clone()?);
        reader.seek(SeekFrom::Start(0))?;
        let (mut offset, mut lines, mut line) = (0, 0, Vec::new());
        loop {
            line.clear();
            let read = (&mut reader)
                .take(2 * LINE_MAX as u64)
                .read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            each(offset, &line[..read - 1]);
            offset += read as u64;
            lines += 1;
        }
        // The descriptor's position is shared with the writer.
        reader.seek(SeekFrom::End(0))?;
        Ok(lines)
    }
}

impl SpoolWriter {
    /// Appends `line`; it can be read after the next [`Self::flush`]. Returns its offset.
    pub(crate) fn push(&mut self, line: &[u8]) -> io::Result<u64> {
        let offset = self.len;
        self.out.write_all(line)?;
        self.out.write_all(b"\n")?;
        self.len += line.len() as u64 + 1;
        Ok(offset)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_at_their_offsets() {
        let (spool, mut writer) = unnamed().unwrap();
        let long = vec![b'y'; 40_000];
        let offsets: Vec<u64> = [&b"http://a/"[..], b"", &long, b"z"]
            .iter()
            .map(|line| writer.push(line).unwrap())
            .collect();
        writer.flush().unwrap();
        let mut line = Vec::new();
        for (offset, wanted) in offsets.iter().zip([&b"http://a/"[..], b"", &long, b"z"]) {
            spool.read(*offset, &mut line).unwrap();
            assert_eq!(line, wanted);
        }
        let mut seen = Vec::new();
        assert_eq!(spool.scan(|offset, _| seen.push(offset)).unwrap(), 4);
        assert_eq!(seen, offsets);
        let more = writer.push(b"after a scan").unwrap();
        writer.flush().unwrap();
        spool.read(more, &mut line).unwrap();
        assert_eq!(line, b"after a scan");
        assert!(spool.read(1 << 40, &mut line).is_err());
    }

    #[test]
    fn a_torn_last_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("urls.txt");
        for (torn, whole) in [
            ("a\nb\nhal", "a\nb\n"),
            ("hal", ""),
            ("", ""),
            ("a\n", "a\n"),
        ] {
            std::fs::write(&path, torn).unwrap();
            let (_, mut writer) = at(&path).unwrap();
            assert_eq!(writer.push(b"next").unwrap(), whole.len() as u64);
            writer.flush().unwrap();
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                format!("{whole}next\n")
            );
        }
        std::fs::write(&path, vec![b'x'; 10_000]).unwrap();
        at(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
