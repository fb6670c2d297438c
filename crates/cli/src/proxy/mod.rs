//! `politely proxy`: a gateway and a forward proxy in front of the tower layer of `politely`.
//!
//! Nothing is decided here. The layer waits for permits, sends again and reports, as it does in a
//! Rust program. A request passes through these files in this order:
//!
//! | file | the question that it answers |
//! | --- | --- |
//! | `listen` | Which connections are there, and how do they end? |
//! | `caller` | Has a caller left? |
//! | `reload` | What changes at SIGHUP? |
//! | `access` | May this caller use the proxy? |
//! | `way` | Where does the request go? |
//! | `hops` | Which header fields are for this hop only? |
//! | `wishes` | What does the caller ask of the limits? |
//! | `body` | Can the body be sent again? |
//! | `upstream` | How does a request reach its host? |
//! | `links` | How do URLs in an answer lead back through the gateway? |
//! | `guard` | Which addresses may be connected to? |
//! | `tunnel` | How do the bytes of CONNECT and of WebSocket pass? |
//! | `problem` | What is the caller told when there is no answer? |

mod access;
mod body;
mod caller;
mod forward;
mod guard;
mod hops;
mod links;
mod listen;
mod problem;
mod reload;
mod tunnel;
mod upstream;
mod way;
mod wishes;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::{Args as _, FromArgMatches as _};
use politely::attempts::Attempts;
use politely::layer::PoliteLayer;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tower::Layer as _;

use crate::args::{ProxyArgs, ServeArgs};
use crate::config::Settings;
use crate::exit::{Exit, Wrong, io_words, runtime};
use crate::fetch::{Resolver, budgets, labelled, limiter, read_some, retry_policy};
use crate::{log, presets, serve, service_manager, token};

use access::Access;
use body::Kept;
use forward::Proxy;
use guard::Guard;
use upstream::Upstream;
use way::Routes;

/// The maximum number of hosts whose limits are kept: about 300 MB at most. Callers choose hosts.
const HOSTS_MAX: usize = 1 << 20;

/// A proxy that listens.
pub(crate) struct Started {
    listener: TcpListener,
    pub(crate) url: String,
    proxy: Arc<Proxy>,
}

pub(crate) fn run(args: ProxyArgs) -> Result<Exit, Wrong> {
    let runtime = runtime(&mut Builder::new_multi_thread())?;
    runtime.block_on(async {
        let ended = serve::end();
        let shares_by = match args.store {
            Some(_) => "the engine",
            None => "the coordinator",
        };
        let started = Started::new(args).await?;
        log::say(&format!("politely: {}", started.url));
        let limiter = &started.proxy.limiter;
        service_manager::tell_ready(&started.url);
        tokio::spawn(service_manager::feed_watchdog(limiter.clone()));
        if limiter.is_shared() {
            tokio::spawn(serve::tell_trouble(limiter.clone(), shares_by));
        }
        started.serve(ended).await;
        Ok(Exit::AllFetched)
    })
}

/// Starts the proxy of `serve --proxy`, a worker of the coordinator at `coordinator`.
pub(crate) async fn beside(
    serve: &ServeArgs,
    listen: SocketAddr,
    mut coordinator: SocketAddr,
) -> Result<Started, Wrong> {
    if serve.token_file.is_some() && token::read(None)?.is_none() {
        let why = "--proxy with --token-file: put the token of a worker into POLITELY_TOKEN";
        return Err(Wrong(why.to_owned()));
    }
    if coordinator.ip().is_unspecified() {
        coordinator.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let flags = [
        format!("--listen={listen}"),
        format!("--coordinator=http://{coordinator}"),
    ];
    let command = ProxyArgs::augment_args(clap::Command::new("proxy").no_binary_name(true));
    let read = command.try_get_matches_from(flags);
    let read = read.and_then(|read| ProxyArgs::from_arg_matches(&read));
    let args = read.map_err(|why| Wrong(why.to_string()))?;
    Started::new(ProxyArgs {
        route: serve.route.clone(),
        token_file: serve.token_file.clone(),
        ..args
    })
    .await
}

impl Started {
    async fn new(mut args: ProxyArgs) -> Result<Self, Wrong> {
        let settings = settings(&mut args)?;
        let proxy = Arc::new(proxy(&mut args, &settings)?);
        let files = reload::Files {
            // The rules of a preset do not change.
            policy: settings.policy.clone().filter(|_| args.preset.is_none()),
            tokens: args.token_file.take(),
        };
        tokio::spawn(reload::at_hangups(files, settings, Arc::clone(&proxy))?);
        let listener = TcpListener::bind(args.listen).await;
        let address = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = address.map_err(|why| {
            Wrong(format!(
                "cannot listen on {}: {}",
                args.listen,
                io_words(&why)
            ))
        })?;
        Ok(Self {
            listener,
            url: format!("http://{address}"),
            proxy,
        })
    }

    /// Answers requests until `ended`, and those in flight after it.
    pub(crate) async fn serve(self, ended: impl Future<Output = ()>) {
        listen::serve(self.listener, self.proxy, ended).await;
    }
}

fn settings(args: &mut ProxyArgs) -> Result<Settings, Wrong> {
    let mut knobs = args.knobs();
    // The settings know a preset as the policy of that name.
    knobs.policy = knobs.policy.or(args.preset.clone().map(Into::into));
    Settings::checked(knobs).map_err(Wrong)
}

fn proxy(args: &mut ProxyArgs, settings: &Settings) -> Result<Proxy, Wrong> {
    let tokens = match &args.token_file {
        Some(file) => serve::tokens(Some(file))?,
        None => None,
    };
    let is_loopback = args.listen.ip().is_loopback();
    if tokens.is_none() && !is_loopback {
        return Err(Wrong(format!(
            "{} can be reached from other machines: that needs --token-file FILE",
            args.listen
        )));
    }
    let limiter = limiter(settings, HOSTS_MAX)?;
    let book = match (&args.preset, &settings.policy) {
        (Some(name), _) => Some(presets::parse(name, presets::find(name)?)?),
        (None, Some(file)) => Some(read_some(file)?),
        (None, None) => None,
    };
    if let Some(book) = book {
        limiter.set_policy(labelled(book, settings)?);
    }
    let policy = retry_policy(settings);
    let (per_key, global) = budgets(&policy);
    let attempts = Attempts::new(limiter.clone()).policy(policy);
    let layer = PoliteLayer::new(attempts.budgets(per_key, global)).replayed_by::<Kept>();
    let guard = Guard::new(Resolver::default(), args.allow_private);
    let upstream = Upstream::new(&guard, args.timeout.0)?;
    Ok(Proxy {
        access: Access::new(tokens),
        routes: Routes::new(std::mem::take(&mut args.route), is_loopback)?,
        guard,
        service: layer.layer(upstream),
        limiter,
        wait_max: args.wait,
        tells_waits: !args.no_wait_headers,
    })
}
