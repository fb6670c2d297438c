//! The command-line arguments. [`crate::config`] checks and layers them, and [`crate::fetch`] runs.

mod groups;
mod proxy;
mod serve;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand};

use crate::config::{Knobs, Profile};
use crate::log::Form;
use crate::otlp::OtlpArgs;
use crate::units::Span;
pub(crate) use crate::worker_args::{
    AuditArgs, AuditBy, BudgetsArgs, BudgetsCommand, Coordinators, KeysArgs, KeysCommand, LockArgs,
};
pub(crate) use proxy::ProxyArgs;
pub(crate) use serve::{ServeArgs, ServedKey};

/// Fetch pages from rate-limited hosts without losing one.
#[derive(Debug, Parser)]
#[command(
    name = "politely",
    version,
    long_version = crate::build::LONG_VERSION,
    propagate_version = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Fetch(Box<FetchArgs>),
    Target(TargetArgs),
    Demo(DemoArgs),
    Simulate(SimulateArgs),
    Serve(Box<ServeArgs>),
    Local(LocalArgs),
    Proxy(Box<ProxyArgs>),
    Top(TopArgs),
    Policy(PolicyArgs),
    Presets(PresetsArgs),
    Lock(LockArgs),
    Explain(ExplainArgs),
    Keys(KeysArgs),
    Budgets(BudgetsArgs),
    Audit(AuditArgs),
    State(StateArgs),
    Frontier(FrontierArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Print the address and the token of your own coordinator on this machine, as a line of JSON, and
/// start it if it does not run.
///
/// All programs of a user share it. It is `politely serve` on a free port of loopback, with its
/// state in the user's cache folder. The clients run this command if no coordinator is named.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  2  wrong usage, no folder for it, or it cannot be started")]
pub(crate) struct LocalArgs {
    /// Time without a call after which a coordinator ends that this command starts
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5m",
        allow_hyphen_values = true
    )]
    pub(crate) exit_when_idle: Span,
}

/// Check a policy file, explain what it says about a URL, or compare two.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done; for check: the file is a policy; for diff: the rules are the same
  1  check: the file is no policy; diff: the rules differ
  2  wrong usage, or a file that cannot be read")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Read all rules of FILE; an error names its line
    Check {
        /// The policy
        file: PathBuf,
    },
    /// Print the rule that wins for a URL or a key, and its limits
    Explain {
        /// The policy
        file: PathBuf,
        /// `https://api.example.com/v1/items`, or a key such as `custom/team-7`
        url: String,
    },
    /// Print each pattern whose rule differs: + is new, - is gone, ~ has changed
    Diff {
        /// The policy before
        old: PathBuf,
        /// The policy after
        new: PathBuf,
    },
}

/// Explain what holds a host back, since when, and what was learned about it: from a coordinator,
/// or from a state folder of `politely fetch` that no run uses.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  2  wrong usage, a host that is not known, no coordinator that answers, or a folder that is in use")]
pub(crate) struct ExplainArgs {
    /// The host, with its port unless that is the usual one, or another key
    pub(crate) host: String,
    /// Read the folder of `politely fetch --state DIR`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["coordinator", "token_file"])]
    pub(crate) state: Option<PathBuf>,
    /// With --state: the profile of its runs
    #[arg(long, value_enum, requires = "state")]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) to: Coordinators,
}

/// List or show the policies of known APIs that come with politely.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  2  wrong usage, no preset of that name")]
pub(crate) struct PresetsArgs {
    #[command(subcommand)]
    pub(crate) command: PresetsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PresetsCommand {
    /// Print the names of all presets, with the date on which their sources were read
    List,
    /// Print a preset, a policy file for `politely serve --policy`
    Show {
        /// The preset, for example `github`
        name: String,
    },
}

/// Print the completions of a shell.
///
/// For bash: `politely completions bash > ~/.local/share/bash-completion/completions/politely`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the completions
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Print a manual page, or write all of them.
///
/// To read one: `politely man serve | man -l -`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The command that the page describes (default: politely itself)
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into DIR
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}

/// Check, save or restore the state folder of a coordinator that is stopped.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done; for check: nothing is damaged
  1  check: something is damaged
  2  wrong usage, a folder or file that cannot be read or written, or that is in use; nothing was changed")]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    pub(crate) command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Read all of DIR and verify its checksums; nothing is changed
    Check {
        /// The folder given to `politely serve --state`
        dir: PathBuf,
    },
    /// Write all of DIR into FILE, which must not exist
    Backup {
        /// The folder given to `politely serve --state`
        dir: PathBuf,
        /// The backup
        file: PathBuf,
    },
    /// Put the backup FILE into DIR; damaged files there are moved to DIR/replaced
    Restore {
        /// An empty folder, a new one, or one whose state is damaged
        dir: PathBuf,
        /// The backup
        file: PathBuf,
    },
}

/// Fill, read or count the frontier of a coordinator (`politely serve --frontier DIR`).
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  done
  1  import: some pages were not stored (the first is named)
  2  wrong usage, a file that cannot be read or written, no coordinator that answers, an unknown crawl")]
pub(crate) struct FrontierArgs {
    #[command(subcommand)]
    pub(crate) command: FrontierCommand,
    #[command(flatten)]
    pub(crate) to: Coordinators,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FrontierCommand {
    /// Add the pages in FILE to CRAWL: one URL or one JSON object per line; pages that the crawl
    /// knows do not change
    Import {
        /// The crawl, which is created if it is missing
        crawl: String,
        /// The pages (default: standard input); blank lines and lines with # are skipped
        file: Option<PathBuf>,
    },
    /// Write all pages of CRAWL as lines that import reads, visited pages too; priorities and
    /// orders are not exported
    Export {
        /// The crawl
        crawl: String,
        /// Write to FILE (default: standard output)
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the numbers of all crawls
    Stats {
        /// Print one JSON line per crawl instead of a table
        #[arg(long)]
        json: bool,
    },
}

/// Show a coordinator's keys in the terminal: rates, holds, refusals, and why each key waits.
///
/// Keys: arrows or j k move, / searches, s sorts, r reverses, f filters by state, Enter opens a
/// key, Esc goes back, h holds a key for 60 s, u lifts its hold, ? shows help, q quits. `NO_COLOR`
/// is respected.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  ended as asked
  2  wrong usage, no terminal; with --once also: no coordinator answers, or it wants another token")]
pub(crate) struct TopArgs {
    /// URL of the coordinator (politely serve); of several, the first that answers is shown
    #[arg(long, value_name = "URL,…", default_value = "http://127.0.0.1:7077")]
    pub(crate) coordinator: String,
    /// Read the coordinator's token from FILE (default: `POLITELY_TOKEN`)
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print the table once, as plain text: the first 1,000 keys by name
    #[arg(long)]
    pub(crate) once: bool,
}

/// Fetch every URL, each host at the rate it really allows.
///
/// One JSON line per URL goes to --output (default: standard output), or a line of CSV to a file
/// that ends with .csv: `url key status attempts refused bytes wait_ms latency_ms error` and what
/// is known of the last answer. A URL is fetched when its last
/// answer is 2xx; redirects are followed, each hop at its own host's pace. Everything else (404, a
/// robots.txt that forbids, a time-out after all retries) is a failed URL with its reason in
/// `error`. A URL that is given twice is fetched once.
///
/// A line of the input may be a JSON object: `{"url", "method", "headers", "body", "priority",
/// "meta"}`. It needs a `url` only.
#[derive(Args, Debug)]
#[command(
    mut_args(groups::grouped),
    after_help = "Try --help for all flags and for examples."
)]
#[command(after_long_help = "\
Examples:
  Fetch a list, keep the pages, and go on after a kill with the same command (later with --again):
    politely fetch --input urls.txt --output results.jsonl --save pages --state run
  Call an API with a token, one JSON object a line with `url` and `body`:
    politely fetch --profile api --bearer-file token --input calls.jsonl --output answers.jsonl
  Share the limits with other programs through a coordinator:
    politely fetch --coordinator http://127.0.0.1:7077 --input urls.txt

Exit codes:
  0  every URL was fetched
  1  some URLs failed (the first 20 are listed), or the run was interrupted
  2  wrong usage, unreadable input or an unusable state folder; nothing was fetched

Press Ctrl-C once to finish what is in flight and save, twice to stop at once.")]
pub(crate) struct FetchArgs {
    /// URLs; `-` reads them from standard input, one per line
    pub(crate) urls: Vec<String>,
    /// Read URLs from FILE, one per line (`-` is standard input); blank lines and lines with # are
    /// skipped
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Read settings from FILE (politely.toml); a flag overrides the file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) knobs: Knobs,
    /// Log each key's decisions to standard error; `POLITELY_LOG` takes a filter
    /// (`politely=trace,hyper=debug`)
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Form of the messages on standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    pub(crate) log: Form,
    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,
}

/// Run hosts with known limits on loopback until Ctrl-C, then report what each of them saw.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// `full` (16 hosts of 150 pages), `demo` (45 pages each), or a JSON file
    pub(crate) town: Option<String>,
    /// Play the API of a preset (politely presets list) instead of a town; its paths are those of
    /// the first host in the preset
    #[arg(long, value_name = "NAME", conflicts_with_all = ["town", "log"])]
    pub(crate) preset: Option<String>,
    /// Address of the first host; the others follow it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<Ipv4Addr>,
    /// Port of all hosts
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    pub(crate) port: Option<u16>,
    /// Write one JSON line per request to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Print the report as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Start a small town of limited hosts on loopback, crawl it, and show what was learned.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Pages per host (default 45)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) pages: Option<u32>,
}

/// Simulate clients that limit themselves against hosts with known limits, in virtual time.
///
/// Every law runs every scenario with every seed. The same scenarios, laws and seeds give the same
/// bytes.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  every run was done
  2  wrong usage, or scenarios that cannot be simulated; nothing was run")]
pub(crate) struct SimulateArgs {
    /// `suite` (named scenarios), `train` (200 random ones), `held-out` (800), `train-field` (360
    /// in trouble), `held-out-field` (1,080), `backoff` or `declared` (separate studies), or a JSON
    /// file
    #[arg(value_name = "FILE")]
    pub(crate) scenarios: String,
    /// Laws to run: our laws and rivals by name, or `all` (default: discover)
    #[arg(long, value_name = "LAW,…", value_delimiter = ',')]
    pub(crate) law: Vec<String>,
    /// Profile under which our laws run (default: api)
    #[arg(long, value_enum)]
    pub(crate) profile: Option<SimulatedProfile>,
    /// Runs per scenario and law: seeds 1 to N (default 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=10_000).map(i64::cast_unsigned))]
    pub(crate) seeds: Option<u64>,
    /// Run only scenarios whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Print at the end each law's N worst scenarios by utilisation and by refusals
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..).map(|n| n as usize)
    )]
    pub(crate) worst: usize,
    /// Print one JSON line per run instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw pictures into DIR: every run of the first seed over time, and all laws side by side
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
}

/// The bounds of our laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SimulatedProfile {
    /// No politeness cap
    Api,
    /// Polite to strangers: 1 request/s at first, never more than 10
    Crawler,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_of_flags_is_sound() {
        Cli::command().debug_assert();
    }
}
