//! `politely frontier`: fills, reads and counts the frontier of a coordinator over HTTP.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use politely_api::client::{CallError, Client};
use politely_api::wire::{
    FrontierCounts, FrontierDomainsQuery, FrontierPage, FrontierPagesQuery, FrontierUrl, PutSummary,
};
use tokio::runtime::Runtime;

use crate::args::{FrontierArgs, FrontierCommand};
use crate::exit::{Exit, Wrong, io_words, print};
use crate::fault::reach;
use crate::{log, token};

/// The bytes after which the lines that were read are sent.
const BATCH_BYTES: usize = 1 << 20;
/// The most domains or pages in one answer.
const LIMIT: u32 = 1_000;

pub(crate) fn run(args: &FrontierArgs) -> Result<Exit, Wrong> {
    let (client, runtime) = reach(&args.to)?;
    let place = args.to.coordinator.clone();
    let frontier = Frontier {
        client,
        place,
        runtime,
    };
    match &args.command {
        FrontierCommand::Import { crawl, file } => import(&frontier, crawl, file.as_deref()),
        FrontierCommand::Export { crawl, output } => export(&frontier, crawl, output.as_deref()),
        FrontierCommand::Stats { json } => stats(&frontier, *json),
    }
}

/// The frontier of a coordinator.
struct Frontier {
    client: Client,
    place: String,
    runtime: Runtime,
}

impl Frontier {
    fn call<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T, Wrong> {
        self.runtime.block_on(call).map_err(|why| {
            let why = why.to_string();
            let advice = token::advice(&why);
            Wrong(format!("{}: {why}{advice}", self.place))
        })
    }
}

fn import(frontier: &Frontier, crawl: &str, file: Option<&Path>) -> Result<Exit, Wrong> {
    let place = file.map_or("standard input".into(), Path::to_string_lossy);
    let input: Box<dyn BufRead> = match file {
        None => Box::new(io::stdin().lock()),
        Some(file) => {
            let opened = File::open(file).map_err(|why| Wrong::file(file, &why))?;
            Box::new(BufReader::new(opened))
        }
    };
    let mut sum = Sum::default();
    let mut batch = Batch::default();
    for (number, line) in (1_u64..).zip(input.lines()) {
        let line = line.map_err(|why| Wrong(format!("{place}: {}", io_words(&why))))?;
        batch.add(number, &line);
        if batch.bytes.len() >= BATCH_BYTES {
            sum.send(frontier, crawl, &mut batch)?;
        }
    }
    sum.send(frontier, crawl, &mut batch)?;
    let PutSummary {
        new,
        known,
        full,
        invalid,
        ..
    } = sum.put;
    log::say(&format!(
        "politely: {new} pages are new, {known} known, {full} beyond a bound, {invalid} invalid"
    ));
    if let Some(why) = sum.put.first_invalid {
        log::say(&format!("error: {place}: {why}"));
    }
    if full + invalid > 0 {
        return Ok(Exit::SomeFailed);
    }
    Ok(Exit::AllFetched)
}

/// Lines that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The numbers of the lines in the file.
    numbers: Vec<u64>,
}

impl Batch {
    fn add(&mut self, number: u64, line: &str) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if line.starts_with('{') {
            self.bytes.extend_from_slice(line.as_bytes());
        } else {
            // Writing to memory cannot fail.
            let _ = serde_json::to_writer(&mut self.bytes, &FrontierPage::from(line));
        }
        self.bytes.push(b'\n');
        self.numbers.push(number);
    }
}

/// The answers so far.
#[derive(Default)]
struct Sum {
    put: PutSummary,
}

impl Sum {
    fn send(&mut self, frontier: &Frontier, crawl: &str, batch: &mut Batch) -> Result<(), Wrong> {
        let Batch { bytes, numbers } = std::mem::take(batch);
        if numbers.is_empty() {
            return Ok(());
        }
        let put = frontier.call(frontier.client.put_pages(crawl, bytes));
        let put = put.map_err(|Wrong(why)| {
            let stored = self.put.new + self.put.known;
            Wrong(format!(
                "{why}; {stored} pages were stored: import the file again"
            ))
        })?;
        if let Some(why) = put.failed {
            return Err(Wrong(format!(
                "{}: {why}; import the file again",
                frontier.place
            )));
        }
        self.put.new += put.new;
        self.put.known += put.known;
        self.put.full += put.full;
        self.put.invalid += put.invalid;
        if let (None, Some(first)) = (&self.put.first_invalid, put.first_invalid) {
            self.put.first_invalid = Some(in_file(&first, &numbers));
        }
        Ok(())
    }
}

/// Returns the words about a page with the number of its line in the file instead of its number in
/// the call.
fn in_file(first_invalid: &str, numbers: &[u64]) -> String {
    let words = first_invalid.strip_prefix("page ");
    let found = words.and_then(|words| {
        let (page, why) = words.split_once(": ")?;
        let place = page.parse::<usize>().ok()?.checked_sub(1)?;
        Some(format!("line {}: {why}", numbers.get(place)?))
    });
    found.unwrap_or_else(|| first_invalid.to_owned())
}

fn export(frontier: &Frontier, crawl: &str, output: Option<&Path>) -> Result<Exit, Wrong> {
    let place = output.map_or("standard output".into(), Path::to_string_lossy);
    let mut out: Box<dyn Write> = match output {
        None => Box::new(BufWriter::new(io::stdout().lock())),
        Some(file) => {
            let created = File::create(file).map_err(|why| Wrong::file(file, &why))?;
            Box::new(BufWriter::new(created))
        }
    };
    let broken = |why: io::Error| Wrong(format!("{place}: {}", io_words(&why)));
    let mut domains = FrontierDomainsQuery {
        after: None,
        limit: Some(LIMIT),
    };
    loop {
        let page = frontier.call(frontier.client.domains(crawl, &domains))?;
        for domain in &page.domains {
            write_pages(frontier, crawl, &domain.domain, &mut out, &broken)?;
        }
        if page.domains.len() < LIMIT as usize {
            break;
        }
        domains.after = page.domains.last().map(|domain| domain.domain.clone());
    }
    out.flush().map_err(broken)?;
    Ok(Exit::AllFetched)
}

fn write_pages(
    frontier: &Frontier,
    crawl: &str,
    domain: &str,
    out: &mut impl Write,
    broken: &impl Fn(io::Error) -> Wrong,
) -> Result<(), Wrong> {
    let mut query = FrontierPagesQuery {
        domain: domain.to_owned(),
        after: None,
        limit: Some(LIMIT),
    };
    loop {
        let part = frontier.call(frontier.client.pages(crawl, &query))?;
        for page in part.pages {
            let line = serde_json::to_string(&exported(page)).unwrap_or_default();
            writeln!(out, "{line}").map_err(broken)?;
        }
        query.after = part.next;
        if query.after.is_none() {
            return Ok(());
        }
    }
}

/// Returns a page in the form in which it is imported.
fn exported(page: FrontierUrl) -> FrontierPage {
    let is_visited = page.visited_unix_ms.is_some();
    FrontierPage {
        key: Some(page.domain),
        due_unix_ms: page.again_unix_ms,
        metadata: page.metadata,
        finished: is_visited && page.again_unix_ms.is_none() && page.leased.is_none(),
        ..FrontierPage::from(page.url.as_str())
    }
}

fn stats(frontier: &Frontier, json: bool) -> Result<Exit, Wrong> {
    let found = frontier.call(frontier.client.crawls())?;
    let mut text = String::new();
    if json {
        for crawl in &found.crawls {
            text += &serde_json::to_string(crawl).unwrap_or_default();
            text.push('\n');
        }
    } else {
        text = table(&found.crawls);
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{} units of work are live", found.units);
    }
    print(text.as_bytes()).map(|_| Exit::AllFetched)
}

fn table(crawls: &[FrontierCounts]) -> String {
    let heads = [
        "crawl", "domains", "pages", "ready", "dated", "leased", "finished",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(crawls.iter().map(|crawl| {
        let name = if crawl.paused {
            format!("{} (paused)", crawl.crawl)
        } else {
            crawl.crawl.clone()
        };
        [
            name,
            crawl.domains.to_string(),
            crawl.pages.to_string(),
            crawl.ready.to_string(),
            crawl.dated.to_string(),
            crawl.leased.to_string(),
            crawl.finished.to_string(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a `String` cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}
