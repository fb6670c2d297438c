//! `politely keys`: writes the set of keys and their settings as JSON lines, and reads it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use politely_api::client::{CallError, Client};
use politely_api::wire::{ImportKeys, ImportedKey, KeysQuery, SortBy};

use crate::args::{KeysArgs, KeysCommand};
use crate::exit::{Exit, Wrong, io_words, is_read};
use crate::fault::{failed, reach};
use crate::log::say;

/// The number of keys in one call.
const KEYS_PER_CALL: usize = 1_000;
/// The longest line that is read, in bytes.
const LINE_MAX: usize = 64 << 10;

pub(crate) fn run(args: &KeysArgs) -> Result<Exit, Wrong> {
    let (client, runtime) = reach(&args.to)?;
    let wrong = |why| failed(&args.to.coordinator, why);
    match &args.command {
        KeysCommand::Export { prefix } => {
            runtime.block_on(export(&client, prefix.as_deref(), wrong))
        }
        KeysCommand::Import { file } => {
            let name = file.display().to_string();
            let lines: Box<dyn BufRead> = if file == Path::new("-") {
                Box::new(io::stdin().lock())
            } else {
                let opened = File::open(file).map_err(|why| Wrong::file(file, &why))?;
                Box::new(BufReader::new(opened))
            };
            runtime.block_on(import(&client, lines, &name, wrong))
        }
    }
}

/// Prints one line per key, in the order of names.
async fn export(
    client: &Client,
    prefix: Option<&str>,
    wrong: impl Fn(CallError) -> Wrong,
) -> Result<Exit, Wrong> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut query = KeysQuery {
        prefix: prefix.map(str::to_owned),
        sort: SortBy::Name,
        limit: Some(KEYS_PER_CALL as u32),
        ..KeysQuery::default()
    };
    loop {
        let page = client.at_each(|client| client.keys(&query)).await;
        let page = page.map_err(&wrong)?;
        for row in page.keys {
            let line = ImportedKey {
                key: row.key,
                set: row.set,
            };
            let line = serde_json::to_string(&line).unwrap_or_default();
            if !is_read(writeln!(out, "{line}"))? {
                return Ok(Exit::AllFetched);
            }
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    let flushed = out.flush();
    flushed.map_err(|why| Wrong(format!("standard output: {}", io_words(&why))))?;
    Ok(Exit::AllFetched)
}

/// Sends the keys of `lines` to the coordinator.
async fn import(
    client: &Client,
    mut lines: Box<dyn BufRead>,
    name: &str,
    wrong: impl Fn(CallError) -> Wrong,
) -> Result<Exit, Wrong> {
    let (mut call, mut line) = (ImportKeys::default(), Vec::new());
    let (mut number, mut changed, mut refused) = (0_u64, 0_u64, 0_u64);
    loop {
        line.clear();
        let mut limited = io::Read::take(&mut lines, LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut line);
        let read = read.map_err(|why| Wrong(format!("{name}: {}", io_words(&why))))?;
        number += 1;
        if line.len() > LINE_MAX {
            return Err(Wrong(format!(
                "{name}:{number}: longer than {LINE_MAX} bytes"
            )));
        }
        let is_over = read == 0;
        if !line.trim_ascii().is_empty() {
            let key = serde_json::from_slice(&line);
            let key = key.map_err(|why| Wrong(format!("{name}:{number}: {why}")))?;
            call.keys.push(key);
        }
        if call.keys.len() == KEYS_PER_CALL || (is_over && !call.keys.is_empty()) {
            let told = client.at_each(|client| client.import_keys(&call)).await;
            let told = told.map_err(&wrong)?;
            changed += u64::from(told.changed);
            refused += call.keys.len() as u64 - u64::from(told.changed);
            for failure in told.failed {
                say(&format!("{}: {}", failure.key, failure.detail));
            }
            call.keys.clear();
        }
        if is_over {
            break;
        }
    }
    say(&format!("{changed} keys imported, {refused} refused"));
    Ok(if refused == 0 {
        Exit::AllFetched
    } else {
        Exit::SomeFailed
    })
}
