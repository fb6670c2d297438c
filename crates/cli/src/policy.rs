//! `politely policy`: checks a policy file, explains what it says, and compares two.

use std::path::Path;

use politely::Key;
use politely::policy::{PolicyError, RuleBook, differences};
use url::Url;

use crate::args::{PolicyArgs, PolicyCommand};
use crate::exit::{Exit, Wrong, url_words};
use crate::log;

pub(crate) fn run(args: &PolicyArgs) -> Result<Exit, Wrong> {
    match &args.command {
        PolicyCommand::Check { file } => match parse(file)? {
            Ok(book) => {
                let count = book.rules().len();
                let rules = if count == 1 { "rule" } else { "rules" };
                println!("{}: {count} {rules}", file.display());
                if count == 0 {
                    let note = "`politely serve` refuses it without --allow-empty-policy";
                    println!("{}: note: {note}", file.display());
                }
                for (line, note) in book.notes() {
                    println!("{}:{line}: note: {note}", file.display());
                }
                Ok(Exit::AllFetched)
            }
            Err(wrong) => {
                log::say(&format!("error: {}", place(file, &wrong)));
                Ok(Exit::SomeFailed)
            }
        },
        PolicyCommand::Diff { old, new } => {
            let lines = differences(&read(old)?, &read(new)?);
            for line in &lines {
                println!("{line}");
            }
            Ok(if lines.is_empty() {
                Exit::AllFetched
            } else {
                Exit::SomeFailed
            })
        }
        PolicyCommand::Explain { file, url } => {
            println!("{}", explain(&read(file)?, url)?);
            Ok(Exit::AllFetched)
        }
    }
}

/// Reads a policy.
///
/// # Errors
/// The file cannot be read, or it is no policy.
pub(crate) fn read(file: &Path) -> Result<RuleBook, Wrong> {
    parse(file)?.map_err(|wrong| Wrong(place(file, &wrong)))
}

fn parse(file: &Path) -> Result<Result<RuleBook, PolicyError>, Wrong> {
    let text = std::fs::read_to_string(file).map_err(|why| Wrong::file(file, &why))?;
    Ok(text.parse())
}

fn place(file: &Path, wrong: &PolicyError) -> String {
    format!("{}:{}: {}", file.display(), wrong.line(), wrong.why())
}

fn explain(book: &RuleBook, url: &str) -> Result<String, Wrong> {
    let (key, ruling) = if url.contains("://") {
        let wrong = |why: &dyn std::fmt::Display| Wrong(format!("{url}: {why}"));
        let url = Url::parse(url).map_err(|why| wrong(&url_words(why)))?;
        let key = Key::of_url(&url).map_err(|why| wrong(&why))?;
        let ruling = book.of_url(&url, &key);
        (key, ruling)
    } else {
        let key = Key::parse(url).map_err(|why| Wrong(format!("{url}: {why}")))?;
        let ruling = book.of_key(&key);
        (key, ruling)
    };
    let Some(ruling) = ruling else {
        return Ok(format!("{key}: no rule; the limits of all keys apply"));
    };
    let rule = ruling.rule;
    let patterns = rule.patterns.join(", ");
    let of = match rule.account() {
        Some(account) => account.name.to_string(),
        None => key.to_string(),
    };
    let held: Vec<String> = rule.held().map(|key| key.name.to_string()).collect();
    let held = if held.is_empty() {
        key.to_string()
    } else {
        held.join(", ")
    };
    Ok(format!(
        "{key}: rule of line {}: {patterns}\n{of}: {rule}\na refusal holds {held}",
        rule.line
    ))
}
