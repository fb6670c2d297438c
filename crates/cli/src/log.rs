//! Logs and messages on standard error, as text or as JSON lines.
//!
//! The environment variable `POLITELY_LOG` takes levels of targets, such as
//! `politely=trace,hyper=debug`. It overrides `--verbose`, which means `politely=debug`. Without
//! either, a server and a waiting lock log trouble (`politely=warn`). A run logs nothing, since it
//! has its progress and its results.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry, reload};

use crate::exit::Wrong;

const VARIABLE: &str = "POLITELY_LOG";

/// The form of all lines on standard error. It is text until [`start`] sets it.
static FORM: OnceLock<Form> = OnceLock::new();

/// The amount of logging if the variable is not set.
pub(crate) enum Told {
    Nothing,
    Trouble,
    Decisions,
}

/// The form of the lines on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// lines for people
    #[default]
    Text,
    /// one JSON object per line: timestamp, level, target, fields
    Json,
}

/// Sets the form of all messages, and starts the log.
pub(crate) fn start(told: &Told, form: Form) -> Result<(), Wrong> {
    let _ = FORM.set(form);
    let filter = match env::var(VARIABLE) {
        Ok(filter) if !filter.trim().is_empty() => filter,
        Err(env::VarError::NotUnicode(_)) => return Err(Wrong(format!("{VARIABLE}: not UTF-8"))),
        _ => match told {
            Told::Nothing => return Ok(()),
            Told::Trouble => "politely=warn".to_owned(),
            Told::Decisions => "politely=debug".to_owned(),
        },
    };
    let parsed = parse(&filter).map_err(|why| Wrong(format!("{VARIABLE}={filter}: {why}")))?;
    let color = env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let (levels, handle) = reload::Layer::new(parsed);
    keep(handle, filter);
    let log = registry().with(levels);
    let lines = fmt::layer().with_writer(std::io::stderr);
    match form {
        Form::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            log.with(lines.with_ansi(color && is_terminal)).init();
        }
        Form::Json => log.with(lines.json()).init(),
    }
    Ok(())
}

fn parse(filter: &str) -> Result<Targets, ParseError> {
    filter.parse()
}

/// The filter of the log.
struct Filter {
    /// The filter at the start.
    text: String,
    /// The levels that were set since, by part.
    levels: Mutex<BTreeMap<String, String>>,
    replace: Box<dyn Fn(Targets) -> Result<(), reload::Error> + Send + Sync>,
}

/// The filter of the log that [`start`] started.
static FILTER: OnceLock<Filter> = OnceLock::new();

fn keep<S: 'static>(handle: reload::Handle<Targets, S>, filter: String) {
    let _ = FILTER.set(Filter {
        text: filter,
        levels: Mutex::default(),
        replace: Box::new(move |filter| handle.reload(filter)),
    });
}

/// Sets the level of a part of the program. A part is a module such as `politely_frontier`; `ROOT`,
/// no name, and the packages of other programs mean all of politely.
pub(crate) fn set_level(part: &str, level: &str) -> Result<(), String> {
    let filter = FILTER.get().ok_or("the program has no log")?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    if let Some(wrong) = part.chars().find(|c| !is_part(*c)) {
        return Err(format!(
            "{part:?} is no name of a module: it contains {wrong:?}"
        ));
    }
    let target = if part.starts_with("politely") {
        part
    } else {
        "politely"
    };
    let mut levels = filter.levels.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = levels.clone();
    next.insert(target.to_owned(), level.to_owned());
    // A later directive replaces an earlier one for the same part.
    let set = next.iter().map(|(part, level)| format!(",{part}={level}"));
    let text = format!("{}{}", filter.text, set.collect::<String>());
    let parsed = parse(&text).map_err(|why| format!("\"{part}\": {why}"))?;
    (filter.replace)(parsed).map_err(|why| why.to_string())?;
    *levels = next;
    Ok(())
}

/// Returns whether messages are JSON lines.
pub(crate) fn is_json() -> bool {
    FORM.get() == Some(&Form::Json)
}

/// Prints a message in the form of the log. The message is lost if standard error is closed.
pub(crate) fn say(message: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{}", line(message));
}

/// Returns a message in the form of the log. The prefix `error: ` sets the level of a JSON line.
pub(crate) fn line(message: &str) -> Cow<'_, str> {
    if is_json() {
        let (level, text) = plain(message);
        Cow::Owned(json_line(level, &serde_json::json!({ "message": text })))
    } else {
        Cow::Borrowed(message)
    }
}

/// Returns a JSON line of the form that `tracing_subscriber` writes.
pub(crate) fn json_line(level: &str, fields: &serde_json::Value) -> String {
    let mut timestamp = String::new();
    // Writing to a `String` cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let line = serde_json::json!({
        "timestamp": timestamp, "level": level, "fields": fields, "target": "politely",
    });
    line.to_string()
}

/// Splits a message into its level and its text without the prefix.
fn plain(message: &str) -> (&'static str, &str) {
    for (prefix, level) in [
        ("error: ", "ERROR"),
        ("politely: ", "INFO"),
        ("hint: ", "INFO"),
    ] {
        if let Some(rest) = message.strip_prefix(prefix) {
            return (level, rest);
        }
    }
    ("INFO", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_has_a_time_a_level_and_fields() {
        let (level, text) = plain("error: cannot \"x\"\n");
        let line = json_line(level, &serde_json::json!({ "message": text }));
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["level"], "ERROR");
        assert_eq!(parsed["fields"]["message"], "cannot \"x\"\n");
        assert!(
            parsed["timestamp"].as_str().unwrap().ends_with('Z'),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
        assert_eq!(plain("politely: ready").1, "ready");
        assert_eq!(super::line("as it is"), "as it is");
    }
}
