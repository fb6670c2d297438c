//! The user's settings, in `politely.toml` or as flags. One table defines both, so they cannot
//! drift apart.
//!
//! The file comes first, and flags override it. Every value is checked once, after this layering.
//! Every error is one line that names the place:
//! `politely.toml:3: unknown key `rtae`; did you mean `rate`?`

mod file;
mod in_force;
mod labels;
mod words;

pub(crate) use file::in_one_line;
pub(crate) use in_force::cut_in_force;
pub(crate) use labels::Labels;
pub(crate) use words::{
    KeyKind, LawName, OnUnavailableName, Profile, ProxyBy, RetryName, StoreUnavailable, SummaryForm,
};

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use politely::policy::{
    BackoffSetting, BreakerSetting, JitterSetting, RetryBudgetSetting, TroubleSettings, of_flag,
};
use politely::robots::product_token;
use politely::{DeclaredLimits, OperatorNumbers};
use serde::Deserialize;

use crate::exit::{Wrong, url_words};
use crate::site_rps::SiteList;
use crate::units::{Memory, RateText, Size, Span, number, whole};

/// All settings of the flags and the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Knobs {
    /// Defaults to start from
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,
    /// Maximum requests per second and key (fractions are fine: 0.2 is one in 5 s); 5000/h is that
    /// many in any hour, evenly spread
    #[arg(long, value_name = "RPS", allow_hyphen_values = true)]
    pub(crate) rate: Option<RateText>,
    /// Further limits of each key, which all hold: "10/s; 1000/day@UTC; 5MB/s; 100 concurrent"; a
    /// new window starts full
    #[arg(long, value_name = "N/TIME;…", allow_hyphen_values = true)]
    pub(crate) limits: Option<DeclaredLimits>,
    /// Take rules of limits from FILE (docs/reference/policy.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Values for the names of keys in a policy: `token_name=ci,team=a`
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub(crate) labels: Option<Labels>,
    /// Requests that a key may send at once after a pause
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) burst: Option<f64>,
    /// Maximum requests in flight per key
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) in_flight: Option<u32>,
    /// How a key's limit is learned (default: discover)
    #[arg(long, value_enum)]
    pub(crate) law: Option<LawName>,
    /// Scope of a limit
    #[arg(long, value_enum)]
    pub(crate) key: Option<KeyKind>,
    /// Maximum requests in flight over all hosts
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) concurrency: Option<u32>,
    /// Maximum hosts under way; further ones begin when one of these is done or rests
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) max_hosts: Option<u32>,
    /// Maximum requests per second over all hosts; clamped to 2-16, and as many requests in flight
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) max_rps: Option<f64>,
    /// Rates of single sites: "linkedin:1,indeed:10"; each is also the burst and, clamped to 1-8,
    /// the maximum in flight
    #[arg(long, value_name = "SITE:RPS,…")]
    pub(crate) site_rps: Option<SiteList>,
    /// Maximum requests in flight by memory: up to 256MB 3, 512MB 5, 1GB 8, above 12 (a bare number
    /// is MB)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_cap: Option<Memory>,
    /// Share hosts with other processes: the coordinator (politely serve) at URL keeps their
    /// limits; of several that share a --store, the next is called when one does not answer
    #[arg(long, value_name = "URL,…")]
    pub(crate) coordinator: Option<String>,
    /// Share hosts with other processes: cells of the engine at URL keep their limits (redis://…,
    /// postgres://… or zookeeper://…; docs/how-to/run-a-fleet.md)
    #[arg(long, value_name = "URL", conflicts_with = "coordinator")]
    pub(crate) store: Option<String>,
    /// Read the engine's password from FILE (default: `POLITELY_STORE_PASSWORD`)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// While that engine is unavailable: send nothing (closed), or let each process use its share
    /// for at most a minute
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        requires = "store",
        conflicts_with = "coordinator"
    )]
    pub(crate) store_unavailable: Option<StoreUnavailable>,
    /// With --store: time after which a killed process's slots are freed (default 20s, at least
    /// 5s); a longer request renews its own slot
    #[arg(
        long,
        value_name = "TIME",
        requires = "store",
        conflicts_with = "coordinator",
        allow_hyphen_values = true
    )]
    pub(crate) lease: Option<Span>,
    /// While no coordinator answers: send nothing (wait), go on with this worker's share of each
    /// key's limit, if the coordinator allows it (share), or end the run (stop)
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        requires = "coordinator",
        conflicts_with = "store"
    )]
    pub(crate) on_unavailable: Option<OnUnavailableName>,
    /// Read the coordinator's token from FILE (default: `POLITELY_TOKEN`)
    #[arg(
        long,
        value_name = "FILE",
        requires = "coordinator",
        conflicts_with = "store"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of this worker in the coordinator's list of workers, and in the names of keys of a
    /// policy; 1 to 128 bytes
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Which requests are retried, and when
    #[arg(long, value_enum)]
    pub(crate) retry: Option<RetryName>,
    /// Maximum retries per URL
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) retries: Option<u32>,
    /// Delays before a page is sent again after a failure: the first, the factor from
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
    // Spelled as in a policy.
    #[serde(rename = "retry_budget")]
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
    /// Fail a host's URLs when it serves no request for this long while it receives some (default
    /// 15m)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) give_up_after: Option<Span>,
    /// Maximum time for one attempt, to the last byte (default 30s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Span>,
    /// Maximum size of a decoded body (default 16MiB); a longer one is dropped and its URL fails
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_body: Option<Size>,
    /// Send through this proxy (http, https, socks5); several proxies take turns (--proxy-by)
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Vec<String>,
    /// Whether each attempt, page or host has a proxy of its own, if there are several
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) proxy_by: Option<ProxyBy>,
    /// Do not fetch or obey robots.txt
    #[arg(long)]
    pub(crate) no_robots: bool,
    /// User-Agent of every request; its product token selects the robots.txt rules
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Option<String>,
    /// Product token that selects the robots.txt rules, instead of the one in --user-agent
    #[arg(long, value_name = "NAME")]
    pub(crate) robots_token: Option<String>,
    /// Store no cookies and send none
    #[arg(long)]
    pub(crate) no_cookies: bool,
    /// Save bodies under DIR, one folder per host
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Write one JSON line per URL to FILE (`-` is standard output)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the summary at the end
    #[arg(long, value_enum)]
    pub(crate) summary: Option<SummaryForm>,
    /// Keep the run's state in DIR: a killed run continues when it is started again with the same
    /// DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// The settings after layering and checking.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) numbers: OperatorNumbers,
    /// The declared limits of each key.
    pub(crate) declared: DeclaredLimits,
    /// The file with the rules of a policy.
    pub(crate) policy: Option<PathBuf>,
    /// The values for the names of keys in a policy.
    pub(crate) labels: Labels,
    pub(crate) law: Option<LawName>,
    pub(crate) key: KeyKind,
    /// The maximum of requests in flight over all hosts.
    pub(crate) concurrency: u32,
    /// The most hosts under way at once.
    pub(crate) hosts_max: Option<u32>,
    /// The maximum of requests per second over all hosts.
    pub(crate) global_rps: Option<f64>,
    pub(crate) sites: SiteList,
    /// The URLs of the coordinators that keep the hosts' limits, if not this process.
    pub(crate) coordinator: Option<String>,
    pub(crate) on_unavailable: OnUnavailableName,
    /// The engine's URL.
    pub(crate) store: Option<String>,
    pub(crate) store_password_file: Option<PathBuf>,
    pub(crate) store_unavailable: StoreUnavailable,
    pub(crate) lease: Option<Duration>,
    pub(crate) token_file: Option<PathBuf>,
    /// The name of this worker.
    pub(crate) client: Option<String>,
    pub(crate) retry: RetryName,
    pub(crate) retries: Option<u32>,
    /// The operator's numbers for trouble.
    pub(crate) trouble: TroubleSettings,
    /// A host that serves no request for this long is given up.
    pub(crate) give_up_after: Duration,
    pub(crate) timeout: Duration,
    /// The maximum size of a decoded body, in bytes.
    pub(crate) max_body: u64,
    pub(crate) proxies: Vec<String>,
    pub(crate) proxy_by: ProxyBy,
    pub(crate) robots: bool,
    pub(crate) user_agent: String,
    /// The product token that selects the robots.txt rules.
    pub(crate) robots_token: String,
    pub(crate) cookies: bool,
    pub(crate) save: Option<PathBuf>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) summary: SummaryForm,
    pub(crate) state: Option<PathBuf>,
}

/// The default maximum of requests in flight over all hosts. It keeps a small machine's cores busy
/// with pages of a few kilobytes. It needs few enough descriptors for the usual limit of 1,024.
const CONCURRENCY_DEFAULT: u32 = 256;
/// The largest allowed `concurrency`, since each request in flight holds a socket and its buffers.
const CONCURRENCY_MAX: u32 = 65_536;
/// The default of `give_up_after`. A deployment or the restart of a machine takes less, and a dead
/// host must not hold a run for hours.
const GIVE_UP_AFTER_DEFAULT: Duration = Duration::from_mins(15);
/// The shortest lease with `--store`. A renewal is sent when a third is left, and it may wait a
/// second for the engine.
const STORE_LEASE_MIN: Duration = Duration::from_secs(5);
/// The default time-out of an attempt. A slow page takes less, and a dead host costs little.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The default maximum of a body. Nearly every page is smaller, and it bounds the cost of one URL.
const MAX_BODY_DEFAULT: u64 = 16 << 20;
/// Names this program and a contact address for complaints.
const USER_AGENT: &str = concat!(
    "politely/",
    env!("CARGO_PKG_VERSION"),
    " (+https://github.com/politely/politely)"
);

impl Settings {
    /// Reads the file of `--config` and lets the flags override it.
    pub(crate) fn layered(file: Option<&Path>, flags: Knobs) -> Result<Self, Wrong> {
        let file = file.map_or_else(|| Ok(Knobs::default()), file::read)?;
        Self::checked(flags.over(file)).map_err(Wrong)
    }

    pub(crate) fn checked(knobs: Knobs) -> Result<Self, String> {
        knobs.all_in_force()?;
        let numbers = OperatorNumbers {
            rate: knobs.rate.as_ref().map(|rate| rate.per_s),
            burst: knobs.burst,
            in_flight: knobs.in_flight,
            ..OperatorNumbers::default()
        };
        sound(numbers)?;
        let declared = declared(knobs.limits, knobs.rate);
        within(
            "concurrency",
            knobs.concurrency.map(f64::from),
            1.0,
            f64::from(CONCURRENCY_MAX),
        )?;
        within("retries", knobs.retries.map(f64::from), 0.0, 1e3)?;
        within("max-hosts", knobs.max_hosts.map(f64::from), 1.0, 1e9)?;
        within("max-rps", knobs.max_rps, 1e-6, 1e6)?;
        for proxy in &knobs.proxy {
            let url = url::Url::parse(proxy);
            let proxy = crate::fetch::without_login(proxy);
            let url = url.map_err(|why| format!("--proxy {proxy}: {}", url_words(why)))?;
            if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") {
                return Err(format!(
                    "--proxy {proxy}: use http, https, socks5 or socks5h"
                ));
            }
        }
        let user_agent = knobs.user_agent.unwrap_or_else(|| USER_AGENT.to_owned());
        if http::HeaderValue::from_str(&user_agent).is_err() || user_agent.trim().is_empty() {
            return Err("--user-agent: must be visible characters on one line".to_owned());
        }
        let robots_token = match knobs.robots_token {
            None => product_token(&user_agent).to_owned(),
            Some(token) if !token.is_empty() && product_token(&token) == token => token,
            Some(token) => {
                return Err(format!(
                    "--robots-token \"{}\": not a product token; use letters, digits, \"-\", \"_\" and \".\" only",
                    token.escape_debug()
                ));
            }
        };
        let trouble = TroubleSettings {
            backoff: knobs.backoff,
            jitter: knobs.jitter,
            retry_budget: knobs.retry_budget,
            breaker: knobs.breaker,
            cut: knobs.cut,
        };
        trouble.check().map_err(|why| format!("--{why}"))?;
        let profile = knobs.profile.unwrap_or_default();
        let by_memory = knobs.memory_cap.map(in_flight_by_memory);
        let global_rps = knobs.max_rps.map(|rps| rps.clamp(2.0, 16.0));
        let bound = by_memory.or(global_rps.map(|rps| rps as u32));
        let concurrency = [knobs.concurrency, bound]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(CONCURRENCY_DEFAULT);
        Ok(Self {
            profile,
            numbers,
            declared,
            policy: knobs.policy,
            labels: knobs.labels.unwrap_or_default(),
            law: knobs.law,
            key: knobs.key.unwrap_or_default(),
            concurrency,
            hosts_max: knobs.max_hosts,
            global_rps,
            sites: knobs.site_rps.unwrap_or_default(),
            coordinator: knobs.coordinator,
            on_unavailable: knobs.on_unavailable.unwrap_or_default(),
            store: knobs.store,
            store_password_file: knobs.store_password_file,
            store_unavailable: knobs.store_unavailable.unwrap_or_default(),
            lease: knobs.lease.map(|span| span.0),
            token_file: knobs.token_file,
            client: knobs.client,
            retry: knobs.retry.unwrap_or_default(),
            retries: knobs.retries,
            trouble,
            give_up_after: (knobs.give_up_after).map_or(GIVE_UP_AFTER_DEFAULT, |span| span.0),
            timeout: knobs.timeout.map_or(TIMEOUT_DEFAULT, |span| span.0),
            max_body: knobs.max_body.map_or(MAX_BODY_DEFAULT, |size| size.0),
            proxies: knobs.proxy,
            proxy_by: knobs.proxy_by.unwrap_or_default(),
            robots: !knobs.no_robots && profile == Profile::Crawler,
            user_agent,
            robots_token,
            cookies: !knobs.no_cookies,
            save: knobs.save,
            output: knobs.output,
            summary: knobs.summary.unwrap_or_default(),
            state: knobs.state,
        })
    }
}

/// Returns a job scraper's maximum of requests in flight for an amount of memory.
fn in_flight_by_memory(memory: Memory) -> u32 {
    match memory.0 {
        0..=0x1000_0000 => 3,
        0x1000_0001..=0x2000_0000 => 5,
        0x2000_0001..=0x4000_0000 => 8,
        _ => 12,
    }
}

/// Returns the limits of `--limits` and `--rate` together.
pub(crate) fn declared(limits: Option<DeclaredLimits>, rate: Option<RateText>) -> DeclaredLimits {
    let limits = limits.unwrap_or_default();
    match rate.and_then(|rate| rate.limit) {
        Some(limit) => limits.with(limit),
        None => limits,
    }
}

/// Checks that an operator's numbers are within their bounds. The error names the flag that is not.
pub(crate) fn sound(set: OperatorNumbers) -> Result<(), String> {
    within("rate", set.rate, 1e-6, 1e6)?;
    within("burst", set.burst, 1.0, 1e6)?;
    within("in-flight", set.in_flight.map(f64::from), 1.0, 1e4)
}

fn within(name: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), String> {
    match value {
        Some(value) if !(low..=high).contains(&value) => Err(format!(
            "--{name} {value}: must be between {low} and {high}"
        )),
        _ => Ok(()),
    }
}

/// Layers settings: the fields that are options, and then the others.
macro_rules! layered {
    ($over:ident, $under:ident, $($option:ident)*, $($other:ident: $value:expr),*) => {
        Self { $($option: $over.$option.or($under.$option),)* $($other: $value,)* }
    };
}

impl Knobs {
    /// Returns these settings, with `under` for each one that is not set.
    fn over(self, under: Self) -> Self {
        let proxy = [self.proxy, under.proxy];
        layered! {
            self, under,
            profile rate limits policy labels burst in_flight law key concurrency max_hosts max_rps
            site_rps memory_cap coordinator on_unavailable store store_password_file store_unavailable
            lease token_file client retry retries backoff jitter retry_budget breaker cut give_up_after
            timeout max_body proxy_by user_agent robots_token save output summary state,
            proxy: proxy.into_iter().find(|proxies| !proxies.is_empty()).unwrap_or_default(),
            no_robots: self.no_robots || under.no_robots,
            no_cookies: self.no_cookies || under.no_cookies
        }
    }
}

#[cfg(test)]
mod tests;
