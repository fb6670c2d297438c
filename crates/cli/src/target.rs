//! `politely target`: hosts with known limits, from `politely-target`.

use crate::args::TargetArgs;
use crate::exit::{Exit, Wrong};

/// Runs until Ctrl-C or SIGTERM, then prints the judge's report.
pub(crate) fn run(args: &TargetArgs) -> Result<Exit, Wrong> {
    let args = politely_target::Args {
        town: args.town.clone().unwrap_or_default(),
        bind: args.bind,
        port: args.port,
        log: args.log.clone(),
        json: args.json,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|why| Wrong(format!("no runtime: {why}")))?;
    // The handlers must be installed before the hosts are announced.
    let context = runtime.enter();
    let stop = crate::serve::end();
    drop(context);
    let (mut data, mut talk) = (std::io::stdout(), std::io::stderr());
    runtime
        .block_on(politely_target::run(args, &mut data, &mut talk, stop))
        .map(|_| Exit::AllFetched)
        .map_err(|why| Wrong(why.to_string()))
}
