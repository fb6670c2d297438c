//! What the library tells of its decisions, as lines on standard error: for people who ask for it.
//!
//! The environment variable `POLITELY_LOG` takes a filter as `tracing_subscriber` reads it
//! (`politely=trace,reqwest=debug`) and wins over `--verbose`, which is `politely=debug`. Without either, nothing
//! listens.

use std::env;

use tracing_subscriber::EnvFilter;

use crate::exit::Wrong;

const VARIABLE: &str = "POLITELY_LOG";
const VERBOSE: &str = "politely=debug";

pub(crate) fn start(verbose: bool) -> Result<(), Wrong> {
    let filter = match env::var(VARIABLE) {
        Ok(filter) if !filter.trim().is_empty() => filter,
        Err(env::VarError::NotUnicode(_)) => return Err(Wrong(format!("{VARIABLE}: not UTF-8"))),
        _ if verbose => VERBOSE.to_owned(),
        _ => return Ok(()),
    };
    let filter = EnvFilter::builder()
        .parse(&filter)
        .map_err(|why| Wrong(format!("{VARIABLE}={filter}: {why}")))?;
    let color = env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(color && std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    Ok(())
}
