//! The `politely` binary: it reads arguments and returns an exit code. Each command has its own
//! module.
//!
//! | command | its module |
//! | --- | --- |
//! | `fetch` | `fetch/` |
//! | `serve` | `serve.rs`, over the coordinator in `politely-server` |
//! | `local` | `local.rs`, which starts `serve` |
//! | `keys`, `policy`, `audit`, `frontier`, `lock`, `state`, `top` | the module of that name |
//! | `proxy` | `proxy/`, over the tower layer of `politely` |
//! | `simulate` | `simulate/`, over `politely-sim` |
//! | `target`, `demo` | the module of that name, over `politely-target` |
//!
//! `args.rs` has the flags, and `config/` layers them over environment and file. `exit.rs` has the
//! exit codes and the errors. To limit the requests of a Rust program, use the library `politely`.

#![expect(
    clippy::disallowed_methods,
    reason = "a command line is where time enters and where waiting is done"
)]

mod args;
mod audit;
mod budgets;
mod build;
mod config;
mod demo;
mod engine;
mod exit;
mod explain;
mod fault;
mod fetch;
mod frontier;
mod keys;
mod local;
mod lock;
mod log;
mod manual;
mod otlp;
mod policy;
mod presets;
#[cfg(feature = "proxy")]
mod proxy;
mod risks;
mod serve;
mod service_manager;
mod simulate;
mod site_rps;
mod state;
mod target;
mod token;
#[cfg(feature = "top")]
mod top;
mod unavailable;
mod units;
mod webhooks;
mod worker_args;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Exit;

/// The maximum number of connections that any command makes or accepts.
const DESCRIPTORS: u64 = 1 << 17;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let told = match &cli.command {
        Command::Fetch(args) if args.verbose => log::Told::Decisions,
        Command::Serve(_) | Command::Proxy(_) | Command::Lock(_) => log::Told::Trouble,
        _ => log::Told::Nothing,
    };
    let form = match &cli.command {
        Command::Fetch(args) => args.log,
        Command::Serve(args) => args.log,
        Command::Proxy(args) => args.log,
        _ => log::Form::Text,
    };
    if let Err(wrong) = log::start(&told, form) {
        log::say(&format!("error: {wrong}"));
        return Exit::Usage.into();
    }
    // The process has one TLS provider. A second install fails only because the first is in place.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Each socket needs a descriptor, and shells allow few by default. If the limit cannot be
    // raised, the run continues with fewer.
    let _ = rlimit::increase_nofile_limit(DESCRIPTORS);
    let _ = outlive_full_files();
    let exit = match cli.command {
        Command::Fetch(args) => fetch::run(*args),
        Command::Target(args) => target::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Local(args) => local::run(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args),
        #[cfg(not(feature = "top"))]
        Command::Top(_) => Err(build::without("`politely top`", "top")),
        #[cfg(feature = "proxy")]
        Command::Proxy(args) => proxy::run(*args),
        #[cfg(not(feature = "proxy"))]
        Command::Proxy(_) => Err(build::without("`politely proxy`", "proxy")),
        Command::Policy(args) => policy::run(&args),
        Command::Presets(args) => presets::run(&args),
        Command::Lock(args) => match lock::run(&args) {
            Ok(code_of_its_command) => return code_of_its_command,
            Err(wrong) => Err(wrong),
        },
        Command::Audit(args) => audit::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Budgets(args) => budgets::run(&args),
        Command::State(args) => state::run(&args),
        Command::Frontier(args) => frontier::run(&args),
        Command::Completions(args) => manual::print_completions(&args),
        Command::Man(args) => manual::print_pages(&args),
    };
    exit.unwrap_or_else(|wrong| {
        log::say(&format!("error: {wrong}"));
        Exit::Usage
    })
    .into()
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`) an error. Without a handler, its
/// signal ends the process. The handler stays when the runtime ends.
fn outlive_full_files() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _context = runtime.enter();
    let number = rustix::process::Signal::XFSZ.as_raw();
    signal(SignalKind::from_raw(number)).map(drop)
}
