//! The files of hours, `usage/HOUR.gz`.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::Line;
use super::log_place::Place;
use crate::private;

/// The beginning of the line with the place in the log.
const PLACE: &str = "{\"run\":";

/// Returns the hours of the files in the folder.
pub(super) fn files(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut hours: Vec<u64> = entries
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".gz")?
                .parse()
                .ok()
        })
        .collect();
    hours.sort_unstable();
    hours
}

/// Replaces the file of an hour in one step. In a fleet it begins with the place in the log.
pub(super) fn write(
    folder: &Path,
    hour: u64,
    place: Option<Place>,
    mut lines: Vec<Line>,
) -> io::Result<()> {
    lines.sort_unstable_by(|a, b| (&a.worker, &a.key).cmp(&(&b.worker, &b.key)));
    private::folder(folder)?;
    let made = folder.join(format!("{hour}.new"));
    let file = BufWriter::new(private::create(&made)?);
    let mut file = GzEncoder::new(file, Compression::default());
    if let Some(place) = place {
        serde_json::to_writer(&mut file, &place)?;
        file.write_all(b"\n")?;
    }
    for line in lines {
        serde_json::to_writer(&mut file, &line)?;
        file.write_all(b"\n")?;
    }
    file.finish()?.flush()?;
    fs::rename(made, folder.join(format!("{hour}.gz")))
}

/// Returns the place in the fleet's log until which an hour's file has the counts.
pub(super) fn place(folder: &Path, hour: u64) -> Option<Place> {
    let file = fs::File::open(folder.join(format!("{hour}.gz"))).ok()?;
    let mut line = String::new();
    BufReader::new(GzDecoder::new(file))
        .read_line(&mut line)
        .ok()?;
    serde_json::from_str(&line).ok()
}

/// Calls `visit` with the lines of an hour that have `name`.
pub(super) fn read(
    folder: &Path,
    hour: u64,
    name: &str,
    mut visit: impl FnMut(Line),
) -> io::Result<()> {
    let file = fs::File::open(folder.join(format!("{hour}.gz")))?;
    let quoted = serde_json::to_string(name)?;
    // To find a text is much faster than to read JSON.
    let name = &quoted[1..quoted.len() - 1];
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let line = line?;
        if line.contains(name) && !line.starts_with(PLACE) {
            visit(serde_json::from_str(&line)?);
        }
    }
    Ok(())
}
