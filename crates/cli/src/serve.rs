//! `politely serve`: the coordinator, from `politely-server`.

mod reload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use politely::core::key::KeyKind;
use politely::core::retry::Policy;
use politely::policy::TroubleSettings;
use politely::{Limiter, OperatorNumbers};
use politely_server::store::Store;
use politely_server::{
    Caps, Certificate, Coordinator, FrontierService, FrontierSettings, Grpc, Options, PolicyReads,
    Server, Settings, Token, Tokens,
};

use crate::args::{ServeArgs, ServedKey};
use crate::config::{cut_in_force, declared, sound};
use crate::exit::{Exit, Wrong, runtime};
use crate::risks::Risks;
use crate::unavailable::Unavailable;
use crate::units::Span;
use crate::{engine, log, service_manager, token, webhooks};

use reload::{policy_words, reloads, stamp};

/// Time between two checks whether the engine answers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Wrong> {
    let settings = settings(args)?;
    let key = settings.key;
    let mut options = Options {
        bind: args.bind,
        token: tokens(args.token_file.as_deref())?,
        certificate: certificate(args),
        frontier: None,
        grpc: args.grpc.map(|bind| Grpc {
            bind,
            set_log_level: log::set_level,
        }),
        commit: crate::build::COMMIT,
        collector: args.otlp.collector()?,
    };
    let collector = options.collector.clone();
    let runtime = runtime(&mut tokio::runtime::Builder::new_multi_thread())?;
    let state = state_folder(args)?;
    let store_url = match &args.store {
        Some(url) => Some(token::store_url(url, args.store_password_file.as_deref())?),
        None => None,
    };
    let coordinator = coordinator(args, settings, store_url.as_deref(), state.clone())?;
    let coordinator = sharing(args, coordinator);
    // A change right after the load is a change as well.
    let seen = args.policy.as_deref().and_then(stamp);
    if let Some(file) = &args.policy {
        let loaded = coordinator.load_policy(file, args.allow_empty_policy);
        loaded.map_err(|why| Wrong(policy_words(file, &why)))?;
    }
    if let Some(limits) = &args.limits {
        let checked = coordinator.check_units(limits);
        checked.map_err(|why| Wrong(format!("--limits: {why}")))?;
    }
    let coordinator = match &args.webhooks {
        Some(file) => coordinator.call_webhooks(webhooks::read(file)?),
        None => coordinator,
    };
    let ruled = coordinator.clone();
    options.frontier = frontier(args, key, store_url.as_deref(), &coordinator)?;
    let secure = options.certificate.is_some();
    let limiter = coordinator.limiter().clone();
    let exit = runtime.block_on(async {
        // This runs before the first permit if the engine answers, else as soon as it answers.
        let _ = coordinator.read_shared().await;
        let server = Server::bind(coordinator, options).await;
        let server = server.map_err(|why| Wrong(why.to_string()))?;
        let server = server.caps(Caps {
            peer_connections: args.peer_connections as usize,
            waiting: args.waiting as usize,
            client_keys: args.client_keys as usize,
            ..Caps::default()
        });
        let read = |file| PolicyReads::new(file, args.allow_empty_policy);
        let policy = args.policy.clone().map(|file| (read(file), seen));
        let reloading = reloads(args.token_file.clone(), server.reload(), policy, ruled)?;
        tokio::spawn(reloading);
        let scheme = if secure { "https" } else { "http" };
        let url = format!("{scheme}://{}", server.address());
        log::say(&format!("politely: {url}"));
        if let Some(address) = server.grpc_address() {
            log::say(&format!("politely: gRPC on {address}"));
        }
        if let Some(dir) = &state {
            log::say(&format!("politely: state in {}", dir.display()));
        }
        #[cfg(feature = "proxy")]
        let proxying = proxy(args, server.address()).await?;
        if let Some(file) = &args.ready_file {
            write_ready(file, &url).map_err(|why| Wrong::file(file, &why))?;
        }
        let idle = args.exit_when_idle.map(|Span(time)| server.idle(time));
        service_manager::tell_ready(&url);
        tokio::spawn(service_manager::feed_watchdog(limiter.clone()));
        tokio::spawn(tell_trouble(limiter, "the engine"));
        let ended = async {
            match idle {
                Some(idle) => tokio::select! { () = end() => {}, () = idle => {} },
                None => end().await,
            }
            service_manager::tell_stopping();
            #[cfg(feature = "proxy")]
            if let Some(proxying) = proxying {
                // The requests of the proxy report to this coordinator, so it ends after them.
                let _ = proxying.await;
            }
        };
        if server.run(ended).await {
            return Ok(Exit::AllFetched);
        }
        log::say(
            "error: not all could be saved: what was learned or granted last may be forgotten",
        );
        Ok(Exit::SomeFailed)
    });
    if let Some(collector) = collector {
        collector.close();
    }
    exit
}

/// Writes the address and the process id in one step, so that no reader sees a part of them.
fn write_ready(file: &Path, address: &str) -> std::io::Result<()> {
    let made = file.with_extension("new");
    let about = serde_json::json!({ "address": address, "pid": std::process::id() });
    std::fs::write(&made, format!("{about}\n"))?;
    std::fs::rename(made, file)
}

/// Reports when `who`, the engine or the coordinator, has trouble or loses writes, and when that is
/// over.
pub(crate) async fn tell_trouble(limiter: Limiter, who: &str) {
    let (mut unavailable, mut risks) = (Unavailable::new(who), Risks::default());
    // It gets a moment for its first answer.
    let mut trouble = limiter.ping().await.err();
    loop {
        let news = unavailable.news(trouble.as_deref());
        for news in news.into_iter().chain(risks.news(limiter.risks())) {
            log::say(&format!("politely: {news}"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        trouble = limiter.last_error();
    }
}

/// Returns the coordinator of an engine, of a state folder, or of neither.
fn coordinator(
    args: &ServeArgs,
    settings: Settings,
    store_url: Option<&str>,
    state: Option<PathBuf>,
) -> Result<Coordinator, Wrong> {
    let open = |dir: PathBuf| {
        let opened = Store::open_for(&dir, args.durability.into());
        opened.map_err(|why| Wrong(why.to_string()))
    };
    let coordinator = match (store_url, state) {
        (Some(url), dir) => {
            let (engine, config) = (engine::connect(url)?, engine::connect(url)?);
            let kept = dir.map(open).transpose()?;
            let unavailable = args.store_unavailable.into();
            let coordinator = Coordinator::shared(settings, engine, unavailable, kept);
            let share = |it: Coordinator| it.share_config(Arc::clone(&config)).share_log(config);
            coordinator.map(share)
        }
        (None, None) => Coordinator::new(settings),
        (None, Some(dir)) => {
            let (store, kept) = open(dir)?;
            Coordinator::resume(settings, store, kept)
        }
    };
    coordinator.map_err(|why| Wrong(why.to_string()))
}

/// Starts the proxy of `--proxy`, which ends with this process.
#[cfg(feature = "proxy")]
async fn proxy(
    args: &ServeArgs,
    coordinator: std::net::SocketAddr,
) -> Result<Option<tokio::task::JoinHandle<()>>, Wrong> {
    let Some(listen) = args.proxy else {
        return Ok(None);
    };
    let started = crate::proxy::beside(args, listen, coordinator).await?;
    log::say(&format!("politely: proxy on {}", started.url));
    Ok(Some(tokio::spawn(started.serve(end()))))
}

/// Returns a future that ends at Ctrl-C, or at the SIGTERM of a service manager.
///
/// The handlers are installed when this returns. Call it within a runtime.
pub(crate) fn end() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        match signals {
            [Ok(mut interrupted), Ok(mut terminated)] => {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            }
            [Ok(mut one), Err(_)] | [Err(_), Ok(mut one)] => _ = one.recv().await,
            [Err(_), Err(_)] => std::future::pending().await,
        }
    }
}

fn settings(args: &ServeArgs) -> Result<Settings, Wrong> {
    #[cfg(not(feature = "proxy"))]
    if args.proxy.is_some() {
        return Err(crate::build::without("`politely serve --proxy`", "proxy"));
    }
    #[cfg(not(feature = "grpc"))]
    if args.grpc.is_some() {
        return Err(crate::build::without("gRPC (--grpc)", "grpc"));
    }
    let numbers = OperatorNumbers {
        rate: args.rate.as_ref().map(|rate| rate.per_s),
        burst: args.burst,
        in_flight: args.in_flight,
        ..OperatorNumbers::default()
    };
    sound(numbers).map_err(Wrong)?;
    let mut config = args.profile.config(
        Some(args.law),
        numbers,
        declared(args.limits.clone(), args.rate.clone()),
    );
    if let Some(lease) = &args.lease {
        config.lease = lease.0;
    }
    cut_in_force(args.cut, Some(args.law)).map_err(Wrong)?;
    let trouble = TroubleSettings {
        backoff: args.backoff,
        jitter: args.jitter,
        retry_budget: args.retry_budget,
        breaker: args.breaker,
        cut: args.cut,
    };
    trouble.check().map_err(|why| Wrong(format!("--{why}")))?;
    trouble.of_key().put(&mut config);
    Ok(Settings {
        config,
        retry: trouble.over(&Policy::crawler()).into_owned(),
        profile: word(&args.profile),
        law: word(&args.law),
        key: match args.key {
            ServedKey::Host => KeyKind::Host,
            ServedKey::Site => KeyKind::Site,
        },
        capacity: args.capacity as usize,
        ..Settings::default()
    })
}

/// Returns the value as it is typed on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    let word = value.to_possible_value();
    word.map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Reads the tokens that the coordinator accepts. The environment holds one token only.
pub(crate) fn tokens(file: Option<&Path>) -> Result<Option<Tokens>, Wrong> {
    let Some(found) = token::read(file)? else {
        return Ok(None);
    };
    let tokens = match file {
        Some(_) => Tokens::parse(&found.text),
        None => Token::new(&found.text).map(Tokens::from),
    };
    let tokens = tokens.map_err(|why| Wrong(format!("{}: {why}", found.place)))?;
    Ok(Some(tokens))
}

fn certificate(args: &ServeArgs) -> Option<Certificate> {
    Some(Certificate {
        chain: args.tls_cert.clone()?,
        key: args.tls_key.clone()?,
    })
}

/// Lets workers go on with their shares, if the operator allows it.
fn sharing(args: &ServeArgs, coordinator: Coordinator) -> Coordinator {
    match args.allow_shares {
        Some(Span(lasts)) => coordinator.allow_shares(lasts),
        None => coordinator,
    }
}

/// Opens the frontier, if there is one.
fn frontier(
    args: &ServeArgs,
    kind: KeyKind,
    store_url: Option<&str>,
    coordinator: &Coordinator,
) -> Result<Option<FrontierService>, Wrong> {
    let Some(folder) = &args.frontier else {
        return Ok(None);
    };
    let settings = FrontierSettings {
        spacing: args.frontier_spacing.unwrap_or_default(),
        kind,
        ..FrontierSettings::default()
    };
    let opened = match (folder, store_url) {
        (Some(folder), None) => FrontierService::open(folder, settings, coordinator),
        (None, Some(url)) if engine::is_redis(url) => {
            FrontierService::shared(url, settings, coordinator)
        }
        (None, Some(_)) => {
            let why = "--frontier: a shared frontier needs Redis or Valkey: --store redis://…";
            return Err(Wrong(why.to_owned()));
        }
        (None, None) => {
            let why = "--frontier: name a folder, or share the frontier with --store redis://…";
            return Err(Wrong(why.to_owned()));
        }
        (Some(folder), Some(_)) => {
            return Err(Wrong(format!(
                "--frontier {}: with --store the frontier is in the engine; name no folder",
                folder.display()
            )));
        }
    };
    opened.map(Some).map_err(|why| Wrong(why.to_string()))
}

/// Returns the folder for states, or `None` with `--memory`.
fn state_folder(args: &ServeArgs) -> Result<Option<PathBuf>, Wrong> {
    if args.memory || args.store.is_some() && args.state.is_none() {
        return Ok(None);
    }
    if let Some(dir) = &args.state {
        return Ok(Some(dir.clone()));
    }
    let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    named("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")))
        .map(|dir| Some(dir.join("politely")))
        .ok_or_else(|| {
            let what = "no home folder to keep states in: name one with --state DIR, or --memory";
            Wrong(what.to_owned())
        })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use politely::core::control::{AimdConfig, LawConfig};

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_flags_for_trouble_are_those_of_every_key() {
        let flags = [
            "politely",
            "serve",
            "--law=aimd",
            "--cut=0.6",
            "--backoff=max=9s",
            "--breaker=failures=3,open=2s",
        ];
        let Command::Serve(args) = Cli::parse_from(flags).command else {
            panic!("it is serve");
        };
        let config = settings(&args)
            .unwrap_or_else(|Wrong(why)| panic!("{why}"))
            .config;
        let aimd = AimdConfig {
            cut: 0.6,
            ..AimdConfig::default()
        };
        assert_eq!(config.law, LawConfig::Aimd(Arc::new(aimd)));
        assert_eq!(config.backoff_max.as_secs(), 9);
        let breaker = config.breaker;
        assert_eq!((breaker.trip_after, breaker.rest_min.as_secs()), (3, 2));
    }
}
