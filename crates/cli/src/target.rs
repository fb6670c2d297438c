//! `politely target`: hosts with known limits, from `politely-target`.

use std::net::Ipv4Addr;

use politely::Key;
use politely::policy::RuleBook;
use politely_target::provider::{Charge, Dialect, Provider, ProviderSpec};
use url::Url;

use crate::args::TargetArgs;
use crate::exit::{Exit, Wrong, runtime};
use crate::{log, presets};

/// Runs until Ctrl-C or SIGTERM, then prints the judge's report.
pub(crate) fn run(args: &TargetArgs) -> Result<Exit, Wrong> {
    let runtime = runtime(&mut tokio::runtime::Builder::new_multi_thread())?;
    // The handlers must be installed before the hosts are announced.
    let context = runtime.enter();
    let stop = crate::serve::end();
    drop(context);
    if let Some(name) = &args.preset {
        return runtime.block_on(play(name, args, stop));
    }
    let args = politely_target::Args {
        town: args.town.clone().unwrap_or_default(),
        bind: args.bind,
        port: args.port,
        log: args.log.clone(),
        json: args.json,
    };
    let (mut data, mut talk) = (std::io::stdout(), std::io::stderr());
    runtime
        .block_on(politely_target::run(args, &mut data, &mut talk, stop))
        .map(|_| Exit::AllFetched)
        .map_err(|why| Wrong(why.to_string()))
}

/// Plays the API of a preset.
async fn play(
    name: &str,
    args: &TargetArgs,
    stop: impl Future<Output = ()>,
) -> Result<Exit, Wrong> {
    let book = presets::parse(name, presets::find(name)?)?;
    let bind = args.bind.unwrap_or(Ipv4Addr::LOCALHOST);
    let provider = Provider::start(spec(name, book), bind, args.port.unwrap_or(0)).await;
    let provider = provider.map_err(|why| Wrong(format!("cannot listen on {bind}: {why}")))?;
    log::say(&format!("{} plays {name}", provider.url()));
    stop.await;
    let report = provider.report();
    if args.json {
        let json = serde_json::to_string_pretty(&report);
        println!("{}", json.map_err(|why| Wrong(why.to_string()))?);
    } else {
        print!("{report}");
    }
    Ok(Exit::AllFetched)
}

fn spec(name: &str, book: RuleBook) -> ProviderSpec {
    let dialect = match book.preset().map(|preset| &*preset.headers) {
        Some("x-ratelimit") => Dialect::XRateLimit,
        Some("ratelimit") => Dialect::RateLimit,
        Some("openai") => Dialect::OpenAi,
        Some("anthropic") => Dialect::Anthropic,
        _ => Dialect::None,
    };
    let patterns = book.rules().iter().flat_map(|rule| &rule.patterns);
    let first = patterns.map(|pattern| pattern.split('/').next().unwrap_or(pattern));
    let host = first.map(|host| host.replace("*.", "played.")).next();
    let host = host.unwrap_or_default();
    ProviderSpec {
        name: name.to_owned(),
        dialect,
        charge_of: Box::new(move |method, path| {
            let url = Url::parse(&format!("https://{host}{path}")).ok()?;
            let key = Key::of_url(&url).ok()?;
            let rule = book.of_url(&url, &key)?.rule;
            let account = rule.account().map(|account| account.name.to_string());
            Some(Charge {
                account: account.unwrap_or_else(|| key.to_string()),
                limits: rule.limits.clone(),
                requests: rule.costs.requests(method).unwrap_or(1).into(),
                units: rule.costs.units(method),
            })
        }),
    }
}
