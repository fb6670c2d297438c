//! Logs of the library's decisions, as lines on standard error.
//!
//! The environment variable `POLITELY_LOG` takes a filter of `tracing_subscriber`, such as
//! `politely=trace,reqwest=debug`. It overrides `--verbose`, which means `politely=debug`. Without
//! either, a server logs trouble (`politely=warn`). A run logs nothing, since it has its progress
//! and its results.

use std::env;

use tracing_subscriber::EnvFilter;

use crate::exit::Wrong;

const VARIABLE: &str = "POLITELY_LOG";

/// The amount of logging if the variable is not set.
pub(crate) enum Told {
    Nothing,
    Trouble,
    Decisions,
}

pub(crate) fn start(told: &Told) -> Result<(), Wrong> {
    let filter = match env::var(VARIABLE) {
        Ok(filter) if !filter.trim().is_empty() => filter,
        Err(env::VarError::NotUnicode(_)) => return Err(Wrong(format!("{VARIABLE}: not UTF-8"))),
        _ => match told {
            Told::Nothing => return Ok(()),
            Told::Trouble => "politely=warn".to_owned(),
            Told::Decisions => "politely=debug".to_owned(),
        },
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
