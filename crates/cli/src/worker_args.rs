//! The arguments of `politely lock`, `keys`, `budgets` and `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use politely_api::wire::UsageStep;

use crate::units::Span;

/// The coordinators of a command.
#[derive(Args, Debug)]
pub(crate) struct Coordinators {
    /// URL of the coordinator (politely serve), or of several with the same keys
    #[arg(
        long,
        value_name = "URL,…",
        default_value = "http://127.0.0.1:7077",
        global = true
    )]
    pub(crate) coordinator: String,
    /// Read the coordinator's token from FILE (default: `POLITELY_TOKEN`)
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
}

/// Show what workers did: permits, outcomes, refusals by limits, blocks, waits, bytes, expired
/// leases, and the answers by status.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  2  wrong usage, no coordinator answers, or the token is not an operator's")]
pub(crate) struct AuditArgs {
    /// What a row is about
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: AuditBy,
    /// The time that a row sums up: 1h to 720h, 1d to 30d
    #[arg(long, value_name = "STEP", default_value = "1d")]
    pub(crate) step: UsageStep,
    /// Begin this many hours ago
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=720))]
    pub(crate) last: u64,
    /// Only the row of this worker, key or account
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Print one JSON line per row
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) to: Coordinators,
}

/// What a row of the audit is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AuditBy {
    /// a worker
    #[default]
    Worker,
    /// a key
    Key,
    /// the name of a token
    Account,
}

/// Export or import the set of keys of a coordinator, with the settings that operators made.
///
/// A line is one key: {"key":"example.com","set":{"rate":2.0}}. Without "set", an import creates
/// the key and changes nothing else.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  1  import: some keys were refused; each is named
  2  wrong usage, a file that cannot be read, or no coordinator answers")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
    #[command(flatten)]
    pub(crate) to: Coordinators,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Print each key as one JSON line, in the order of names
    Export {
        /// Print only keys whose names begin with TEXT
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
    },
    /// Create the keys of a file of JSON lines, and make their settings
    Import {
        /// The file; - is standard input
        file: PathBuf,
    },
}

/// Make budgets of a key whole, for example after a wrong usage was reported.
///
/// What was spent of the budget's present window counts no more. Permits that are out give nothing
/// back to it and owe it nothing. Afterwards the budgets of the key are listed with what is left.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  politely budgets reset custom/team-7 '200000 tokens/day@UTC'

Exit codes:
  0  done
  2  wrong usage, an unknown key or budget, or no coordinator answers")]
pub(crate) struct BudgetsArgs {
    #[command(subcommand)]
    pub(crate) command: BudgetsCommand,
    #[command(flatten)]
    pub(crate) to: Coordinators,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetsCommand {
    /// Make one budget of a key whole, or all of them
    Reset {
        /// The key: example.com, custom/team-7
        key: String,
        /// The budget, as the key's page names it; all means all budgets of the key
        budget: String,
    },
}

/// Run a command while this process holds a lock on a key, as flock(1) does for a file.
///
/// The coordinator (politely serve) keeps the lock. Waiting processes are served in order. The
/// command finds the lock's fencing number in `POLITELY_FENCING`, and the key in `POLITELY_KEY`.
/// Signals are passed on to it.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  N    the exit code of the command; 128+N if signal N ended it
  121  the lock was lost while the command ran; the command was ended
  122  the lock was not free in time (--wait)
  2    wrong usage, or the coordinator refuses; the command did not start
  126  the command cannot be run
  127  the command was not found")]
pub(crate) struct LockArgs {
    /// The key: example.com, site/example.co.uk, custom/nightly-job
    pub(crate) key: String,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
    #[command(flatten)]
    pub(crate) to: Coordinators,
    /// The most holders of the key at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) max: u16,
    /// Hold the key alone, whatever --max other holders use
    #[arg(long, conflicts_with = "max")]
    pub(crate) exclusive: bool,
    /// Wait at most TIME for the lock (default: without limit); 0 does not wait
    #[arg(long, value_name = "TIME", value_parser = wait_time)]
    pub(crate) wait: Option<std::time::Duration>,
    /// The lock ends TIME after this process was killed: 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) ttl: Span,
}

/// Reads a time, or 0.
fn wait_time(text: &str) -> Result<std::time::Duration, String> {
    if text == "0" {
        return Ok(std::time::Duration::ZERO);
    }
    text.parse::<Span>().map(|span| span.0)
}
