//! The arguments of `politely serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use politely::DeclaredLimits;
use politely::policy::{
    BackoffSetting, BreakerSetting, JitterSetting, RetryBudgetSetting, of_flag,
};

use super::proxy::route;
use crate::config::{LawName, Profile, StoreUnavailable};
use crate::log::Form;
use crate::otlp::OtlpArgs;
use crate::units::{RateText, Span, number, whole};

/// Coordinate a fleet: grant permits to workers in any language, and learn each host's limit from
/// their reports.
///
/// Workers call POST /api/v1/acquire and /report; /api/v1/openapi.json describes both, and / is the
/// dashboard. The state folder keeps learned limits, holds and permits across a kill.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  ended as asked (Ctrl-C, SIGTERM): what was under way is finished, all is saved
  1  ended as asked, but something could not be saved: the disk refused, or a background task had ended
  2  wrong usage, an unusable address, certificate or state folder, a --store URL that means nothing; nothing was
     served (an engine that is away or refuses is told of, and asked again)")]
pub(crate) struct ServeArgs {
    /// Address to listen on; any address but loopback needs a token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7077")]
    pub(crate) bind: SocketAddr,
    /// Keep the state in DIR (default: politely in `$XDG_STATE_HOME` or ~/.local/state)
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    pub(crate) state: Option<PathBuf>,
    /// Keep the state in memory only
    #[arg(long)]
    pub(crate) memory: bool,
    /// Keep a frontier in DIR, or without DIR in the Redis or Valkey of --store, shared with other
    /// coordinators: a queue of domains and their pages, from which workers take units of work with
    /// permits (docs/how-to/crawl-with-a-frontier.md)
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the flag's value is optional")]
    pub(crate) frontier: Option<Option<PathBuf>>,
    /// Serve the frontier on this address too, as the gRPC service `urlfrontier.URLFrontier`
    #[arg(long, value_name = "ADDRESS:PORT", requires = "frontier")]
    pub(crate) grpc: Option<SocketAddr>,
    /// Pause of a domain between two units of work: fixed:TIME, minimum:TIME (random, from TIME to
    /// twice TIME) or mean:TIME (random, TIME on average)
    #[arg(long, value_name = "HOW:TIME", requires = "frontier", value_parser = spacing, allow_hyphen_values = true)]
    pub(crate) frontier_spacing: Option<politely_server::Spacing>,
    /// Share all keys with other coordinators, in cells of the engine at URL (redis://…,
    /// postgres://… or zookeeper://…; docs/how-to/run-a-fleet.md); --state keeps what was
    /// learned in DIR too
    #[arg(long, value_name = "URL", conflicts_with = "memory")]
    pub(crate) store: Option<String>,
    /// While that engine is unavailable: grant nothing (closed), or let each process use its share
    /// for at most a minute
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value_t,
        requires = "store",
        conflicts_with = "memory"
    )]
    pub(crate) store_unavailable: StoreUnavailable,
    /// While this coordinator does not answer, let each worker that asks for it go on with its
    /// share of the keys' rates and caps, for at most TIME (default 60s;
    /// docs/reference/coordinator.md)
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "60s",
        conflicts_with = "store",
        value_parser = share_time
    )]
    pub(crate) allow_shares: Option<Span>,
    /// The failures that an answered call survives: kill -9 (kill), or also a power loss (power),
    /// which costs an fsync per call that grants or ends permits
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value_t,
        conflicts_with = "memory"
    )]
    pub(crate) durability: DurabilityName,
    /// Read the engine's password from FILE (default: `POLITELY_STORE_PASSWORD`)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// Accept only callers with a token in FILE: one token with all rights, or lines
    /// `ROLE NAME TOKEN` (role: read, worker or operator); SIGHUP reloads FILE; without FILE,
    /// `POLITELY_TOKEN` may hold one token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Maximum connections of one address, or of one IPv6 network (/64)
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=1 << 20).map(i64::cast_unsigned))]
    pub(crate) peer_connections: u64,
    /// Maximum items that wait in held-open calls, per client and per address
    #[arg(long, value_name = "N", default_value_t = 65_536, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=1 << 20).map(i64::cast_unsigned))]
    pub(crate) waiting: u64,
    /// Maximum keys that one client creates; its idle keys make room for new ones
    #[arg(long, value_name = "N", default_value_t = 1 << 19, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=1 << 32).map(i64::cast_unsigned))]
    pub(crate) client_keys: u64,
    /// Serve `politely proxy` on this address too, as a worker of this coordinator; with
    /// --token-file, `POLITELY_TOKEN` has its token
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "tls_cert")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Send requests of the proxy's /NAME/… to URL/…; may be repeated
    #[arg(long, value_name = "NAME=URL", value_parser = route, requires = "proxy")]
    pub(crate) route: Vec<(String, String)>,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Defaults to start from
    #[arg(long, value_enum, default_value_t = Profile::Crawler)]
    pub(crate) profile: Profile,
    /// How a key's limit is learned
    #[arg(long, value_enum, default_value_t = LawName::Discover)]
    pub(crate) law: LawName,
    /// Maximum requests per second and key; 5000/h is that many in any hour, evenly spread
    #[arg(long, value_name = "RPS", allow_hyphen_values = true)]
    pub(crate) rate: Option<RateText>,
    /// Further limits of each key, which all hold: "10/s; 1000/day@UTC; 5MB/s; 100 concurrent"; a
    /// new window starts full
    #[arg(long, value_name = "N/TIME;…", allow_hyphen_values = true)]
    pub(crate) limits: Option<DeclaredLimits>,
    /// Take rules of limits from FILE (docs/reference/policy.md); a change of FILE or SIGHUP reads
    /// it again; with --store, all coordinators follow it
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Accept a FILE of --policy without any rule, which lifts all limits of rules
    #[arg(long, requires = "policy")]
    pub(crate) allow_empty_policy: bool,
    /// Send events to the webhooks in FILE (docs/reference/coordinator.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) webhooks: Option<PathBuf>,
    /// Requests that a key may send at once after a pause
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) burst: Option<f64>,
    /// Maximum requests in flight per key
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) in_flight: Option<u32>,
    /// Delays before workers send a request again after a failure: the first, the factor from
    /// each to the next, and the longest, which is also the longest backoff of a key
    #[arg(
        long,
        value_name = "base=TIME,factor=N,max=TIME", value_parser = of_flag::<BackoffSetting>,
        allow_hyphen_values = true
    )]
    pub(crate) backoff: Option<BackoffSetting>,
    /// Random part of these delays: none, full, equal or decorrelated
    #[arg(long, value_name = "KIND", value_parser = of_flag::<JitterSetting>)]
    pub(crate) jitter: Option<JitterSetting>,
    /// Retries of each key: per served request, per second, and at once
    #[arg(
        long,
        value_name = "ratio=R,per_second=N,burst=N", value_parser = of_flag::<RetryBudgetSetting>,
        allow_hyphen_values = true
    )]
    pub(crate) retry_budget: Option<RetryBudgetSetting>,
    /// Failures in a row after which a key rests, its first rest, which doubles, and the longest
    #[arg(
        long,
        value_name = "failures=N,open=TIME,open_max=TIME", value_parser = of_flag::<BreakerSetting>,
        allow_hyphen_values = true
    )]
    pub(crate) breaker: Option<BreakerSetting>,
    /// Share of the rate that remains after a congestion event, with --law aimd (default 0.8)
    #[arg(long, value_name = "SHARE", value_parser = number, allow_hyphen_values = true)]
    pub(crate) cut: Option<f64>,
    /// Scope of a URL's limits
    #[arg(long, value_enum, default_value_t = ServedKey::Host)]
    pub(crate) key: ServedKey,
    /// Time after which an unreported permit's slot is freed (default 120s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) lease: Option<Span>,
    /// Maximum number of keys
    #[arg(long, value_name = "N", default_value_t = 1 << 20, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=1 << 32).map(i64::cast_unsigned))]
    pub(crate) capacity: u64,
    /// End after TIME without a call; the state folder keeps permits and sessions
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) exit_when_idle: Option<Span>,
    /// When it listens, write its address and its process id to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Form of the messages on standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    pub(crate) log: Form,
    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,
}

/// Reads the time for which workers may go on with their shares.
fn share_time(text: &str) -> Result<Span, String> {
    let time: Span = text.parse()?;
    let bounds = Duration::from_secs(1)..=Duration::from_hours(1);
    if bounds.contains(&time.0) {
        Ok(time)
    } else {
        Err(format!("`{text}` must be from 1s to 1h"))
    }
}

/// Reads the pause of a domain between two units of work.
fn spacing(text: &str) -> Result<politely_server::Spacing, String> {
    use politely_server::Spacing;
    let wrong = || format!("`{text}` must be fixed:TIME, minimum:TIME or mean:TIME");
    let (how, time) = text.split_once(':').ok_or_else(wrong)?;
    let Span(time) = time.parse()?;
    match how {
        "fixed" => Ok(Spacing::Fixed(time)),
        "minimum" => Ok(Spacing::Minimum(time)),
        "mean" => Ok(Spacing::Mean(time)),
        _ => Err(wrong()),
    }
}

/// The failure that an answered call survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DurabilityName {
    /// kill -9
    #[default]
    Kill,
    /// also a power loss
    Power,
}

impl From<DurabilityName> for politely_server::store::Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Kill => Self::Kill,
            DurabilityName::Power => Self::Power,
        }
    }
}

/// The scope of a URL's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServedKey {
    /// the host's name and port
    Host,
    /// the registrable domain
    Site,
}
