//! The user's settings, in `politely.toml` or as flags. One table defines both, so they cannot
//! drift apart.
//!
//! The file comes first, and flags override it. Every value is checked once, after this layering.
//! Every error is one line that names the place:
//! `politely.toml:3: unknown key `rtae`; did you mean `rate`?`

mod again;
mod bounds;
mod connect;
mod file;
mod in_force;
mod knobs;
mod labels;
mod request;
mod site;
mod warc;
mod words;

pub(crate) use again::{AgainSettings, FailedPages, Wanted};
pub(crate) use bounds::Bounds;
pub(crate) use connect::{ConnectSettings, Resolve};
pub(crate) use file::in_one_line;
pub(crate) use in_force::cut_in_force;
pub(crate) use knobs::Knobs;
pub(crate) use labels::Labels;
pub(crate) use request::{RequestSettings, field, first_secret, header, method_of};
pub(crate) use site::{Follow, Scope, SiteSettings};
pub(crate) use warc::WarcSettings;
pub(crate) use words::{
    KeyKind, LawName, OnUnavailableName, Profile, ProxyBy, RetryName, StoreUnavailable, SummaryForm,
};

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderName, SET_COOKIE};
use politely::policy::TroubleSettings;
use politely::robots::product_token;
use politely::{DeclaredLimits, OperatorNumbers};

use crate::exit::{Wrong, url_words};
use crate::site_rps::SiteList;
use crate::units::{Memory, RateText};

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
    pub(crate) request: RequestSettings,
    pub(crate) bounds: Bounds,
    pub(crate) connect: ConnectSettings,
    pub(crate) site: SiteSettings,
    pub(crate) warc: Option<WarcSettings>,
    pub(crate) robots: bool,
    pub(crate) user_agent: String,
    /// The product token that selects the robots.txt rules.
    pub(crate) robots_token: String,
    pub(crate) cookies: bool,
    pub(crate) save: Option<PathBuf>,
    pub(crate) output: Option<PathBuf>,
    /// The header fields of answers that stand in result lines.
    pub(crate) row_headers: Vec<HeaderName>,
    pub(crate) summary: SummaryForm,
    pub(crate) state: Option<PathBuf>,
    pub(crate) again: AgainSettings,
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

    pub(crate) fn checked(mut knobs: Knobs) -> Result<Self, String> {
        knobs.all_in_force()?;
        let request = RequestSettings::checked(&mut knobs)?;
        let bounds = Bounds::checked(&mut knobs)?;
        let again = AgainSettings::checked(&mut knobs)?;
        let row_headers = row_headers(&knobs)?;
        let connect = ConnectSettings::checked(&mut knobs)?;
        let site = SiteSettings::checked(&mut knobs)?;
        let warc = WarcSettings::checked(&mut knobs)?;
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
        knobs
            .proxy
            .iter()
            .try_for_each(|proxy| check_proxy(proxy))?;
        let user_agent = knobs.user_agent.unwrap_or_else(|| USER_AGENT.to_owned());
        if http::HeaderValue::from_str(&user_agent).is_err() || user_agent.trim().is_empty() {
            return Err("--user-agent: must be visible characters on one line".to_owned());
        }
        let robots_token = robots_token(knobs.robots_token, &user_agent)?;
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
            request,
            bounds,
            connect,
            site,
            warc,
            robots: !knobs.no_robots && profile == Profile::Crawler,
            user_agent,
            robots_token,
            cookies: !knobs.no_cookies,
            save: knobs.save,
            output: knobs.output,
            row_headers,
            summary: knobs.summary.unwrap_or_default(),
            state: knobs.state,
            again,
        })
    }
}

/// Returns the product token that rules of robots.txt are for: the one that is given, or that of
/// the user agent.
fn robots_token(given: Option<String>, user_agent: &str) -> Result<String, String> {
    match given {
        None => Ok(product_token(user_agent).to_owned()),
        Some(token) if !token.is_empty() && product_token(&token) == token => Ok(token),
        Some(token) => Err(format!(
            "--robots-token \"{}\": not a product token; use letters, digits, \"-\", \"_\" and \".\" only",
            token.escape_debug()
        )),
    }
}

/// Returns the names of header fields that stand in result lines, and checks that these have a
/// place.
fn row_headers(knobs: &Knobs) -> Result<Vec<HeaderName>, String> {
    if knobs.summary == Some(SummaryForm::Json) && knobs.output.is_none() {
        // Result lines and the summary on one stream could not be told apart.
        return Err(
            "--summary json needs --output FILE for the result lines (`-` for both on standard output)"
                .to_owned(),
        );
    }
    let name = |name: &String| {
        let shown = name.escape_debug();
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("--row-header \"{shown}\": not the name of a header field"))?;
        if name == SET_COOKIE {
            return Err(format!(
                "--row-header {shown}: cookies are secrets and stand in no row"
            ));
        }
        Ok(name)
    };
    knobs.row_header.iter().map(name).collect()
}

/// Checks that `proxy` is the URL of a proxy.
fn check_proxy(proxy: &str) -> Result<(), String> {
    let url = url::Url::parse(proxy);
    let proxy = crate::fetch::without_login(proxy);
    let url = url.map_err(|why| format!("--proxy {proxy}: {}", url_words(why)))?;
    if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") {
        return Err(format!(
            "--proxy {proxy}: use http, https, socks5 or socks5h"
        ));
    }
    Ok(())
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

#[cfg(test)]
mod tests;
