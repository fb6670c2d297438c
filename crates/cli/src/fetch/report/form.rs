//! The forms of result lines: JSON, and CSV (RFC 4180) with a line of names first.
//!
//! A record of CSV has no line break inside, so a file of either form can be cut after a line.

use std::path::Path;

use csv::{ReaderBuilder, WriterBuilder};
use http::header::HeaderName;
use serde::Deserialize;
use serde_json::Value;

use super::output::Row;

/// The columns of CSV. Those of `--row-header` follow.
const COLUMNS: [&str; 21] = [
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
    "run",
    "request",
    "meta",
    "final_url",
    "redirects",
    "content_type",
    "wire_bytes",
    "protocol",
    "address",
    "connect_ms",
    "total_ms",
];
/// The columns that are read back.
const URL_AT: usize = 0;
const RUN_AT: usize = 10;
const REQUEST_AT: usize = 11;

/// The form of result lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// The names of the columns from `--row-header`.
    Csv(Vec<HeaderName>),
}

/// The page of a result line.
pub(crate) struct LineOfPage {
    pub(crate) url: String,
    /// The number of a request that is not a GET of its URL.
    pub(crate) request: Option<u128>,
    /// The number of the run that wrote the line.
    pub(crate) run: u32,
}

impl Form {
    /// Returns the form of the file at `path`, whose name says it.
    pub(crate) fn of(path: &Path, row_headers: &[HeaderName]) -> Self {
        let is_csv = path.extension();
        if is_csv.is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
            Self::Csv(row_headers.to_vec())
        } else {
            Self::Json
        }
    }

    /// Returns the first line of a file.
    pub(super) fn head(&self) -> Option<Vec<u8>> {
        let Self::Csv(names) = self else { return None };
        let names = names.iter().map(HeaderName::as_str);
        Some(record(COLUMNS.into_iter().chain(names)))
    }

    /// Returns the line of a row.
    pub(super) fn line(&self, row: &Row<'_>) -> Vec<u8> {
        let Self::Csv(names) = self else {
            return row.line();
        };
        // Writing to memory does not fail.
        let row = serde_json::to_value(row).unwrap_or_default();
        let columns = COLUMNS.iter().map(|name| text(&row[name]));
        let headers = names
            .iter()
            .map(|name| text(&row["headers"][name.as_str()]));
        record(columns.chain(headers))
    }

    /// Returns the page of a line.
    pub(super) fn page_of(&self, line: &[u8]) -> Option<LineOfPage> {
        match self {
            Self::Json => page_of_json(line),
            Self::Csv(_) => page_of_csv(line),
        }
    }
}

/// Returns the text of a cell.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(redirects) => {
            let urls = redirects.iter().map(|redirect| text(&redirect["url"]));
            urls.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// Returns a line of CSV.
fn record(cells: impl Iterator<Item = impl Into<String>>) -> Vec<u8> {
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    let cells = cells.map(|cell| {
        let cell: String = cell.into();
        cell.replace(['\r', '\n'], " ")
    });
    // Writing to memory does not fail.
    let _ = writer.write_record(cells.collect::<Vec<_>>());
    writer.into_inner().unwrap_or_default()
}

fn page_of_json(line: &[u8]) -> Option<LineOfPage> {
    #[derive(Deserialize)]
    struct Line {
        url: String,
        request: Option<String>,
        run: Option<u32>,
    }
    let line: Line = serde_json::from_slice(line).ok()?;
    Some(LineOfPage {
        url: line.url,
        request: line.request.and_then(|hex| number(&hex)),
        run: line.run.unwrap_or(1),
    })
}

fn page_of_csv(line: &[u8]) -> Option<LineOfPage> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(line);
    let cells = reader.records().next()?.ok()?;
    let url = cells.get(URL_AT).filter(|url| *url != COLUMNS[URL_AT])?;
    Some(LineOfPage {
        url: url.to_owned(),
        request: cells.get(REQUEST_AT).and_then(number),
        run: cells
            .get(RUN_AT)
            .and_then(|run| run.parse().ok())
            .unwrap_or(1),
    })
}

/// Returns the number of a request.
fn number(hex: &str) -> Option<u128> {
    u128::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn csv() -> Form {
        Form::of(Path::new("a.CSV"), &[http::header::ETAG])
    }

    #[test]
    fn the_places_of_the_columns_that_are_read_back_are_right() {
        assert_eq!(COLUMNS[URL_AT], "url");
        assert_eq!((COLUMNS[RUN_AT], COLUMNS[REQUEST_AT]), ("run", "request"));
        let head = csv().head().unwrap();
        assert!(head.starts_with(b"url,key,status,") && head.ends_with(b",total_ms,etag\n"));
        assert!(csv().page_of(&head).is_none());
        assert_eq!(Form::of(Path::new("csv"), &[]), Form::Json);
    }

    proptest! {
        #[test]
        fn a_row_is_one_line_and_its_page_is_read_back(
            url in "\\PC{0,30}",
            error in "(\\PC|\\s){0,30}",
            request in any::<Option<u128>>(),
            run in 2_u32..9,
        ) {
            prop_assume!(url != "url");
            let mut row = Row {
                url: &url,
                error: Some(&error),
                run: Some(run),
                ..Row::default()
            };
            row.page.request = request;
            for form in [Form::Json, csv()] {
                let line = form.line(&row);
                let is_one = line.iter().position(|byte| *byte == b'\n') == Some(line.len() - 1);
                prop_assert!(is_one);
                let page = form.page_of(&line).unwrap();
                prop_assert_eq!((page.url, page.request, page.run), (url.clone(), request, run));
            }
        }

        #[test]
        fn any_line_is_read_without_panic(line in proptest::collection::vec(any::<u8>(), 0..99)) {
            for form in [Form::Json, csv()] {
                let _ = form.page_of(&line);
            }
        }
    }
}
