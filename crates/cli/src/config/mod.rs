//! What the user may set, in `politely.toml` or as a flag: one table for both, so the two cannot drift apart.
//!
//! Layers: the file, then flags over it. Every value is checked once, after layering, and every complaint is
//! one line that names the place: `politely.toml:3: unknown key `rtae`; did you mean `rate`?`

mod words;

pub(crate) use words::{KeyKind, LawName, Profile, RetryName, StoreAway, SummaryForm};

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use politely::OperatorNumbers;
use politely::robots::product_token;
use serde::Deserialize;

use crate::exit::{Wrong, url_words};
use crate::site_rps::SiteList;
use crate::units::{Memory, Size, Span, number, whole};

/// Everything a flag or the file may say.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Knobs {
    /// Where to start from
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,
    /// Requests per second and key: never more than this (fractions are fine: 0.2 is one in 5 s)
    #[arg(long, value_name = "RPS", value_parser = number, allow_negative_numbers = true)]
    pub(crate) rate: Option<f64>,
    /// Requests that may leave at once after a pause
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) burst: Option<f64>,
    /// Requests in flight per key, at most
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) in_flight: Option<u32>,
    /// How a key's limit is learned (discover if not given)
    #[arg(long, value_enum)]
    pub(crate) law: Option<LawName>,
    /// What a limit attaches to
    #[arg(long, value_enum)]
    pub(crate) key: Option<KeyKind>,
    /// Requests in flight over all hosts: at most N
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) concurrency: Option<u32>,
    /// Requests per second over all hosts; clamped to 2-16, and as many requests in flight
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) max_rps: Option<f64>,
    /// A site's own rate: "linkedin:1,indeed:10"; also its burst and, clamped to 1-8, its requests in flight
    #[arg(long, value_name = "SITE:RPS,…")]
    pub(crate) site_rps: Option<SiteList>,
    /// Requests in flight by memory: up to 256MB 3, 512MB 5, 1GB 8, above 12 (a bare number is MB)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_cap: Option<Memory>,
    /// Share hosts with other processes: their limits are kept by the coordinator (politely serve) at URL; of several that
    /// share a --store, the next is asked when one has no answer
    #[arg(long, value_name = "URL,…")]
    pub(crate) coordinator: Option<String>,
    /// Share hosts with other processes: their limits are kept in cells of the engine at URL (redis://…; docs/explanation/fleet.md)
    #[arg(long, value_name = "URL", conflicts_with = "coordinator")]
    pub(crate) store: Option<String>,
    /// The engine's password is in FILE; `POLITELY_STORE_PASSWORD` may hold it instead
    #[arg(long, value_name = "FILE", requires = "store")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// While that engine is away: nothing leaves (closed), or each process goes on with its share, a minute at most
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        requires = "store",
        conflicts_with = "coordinator"
    )]
    pub(crate) store_away: Option<StoreAway>,
    /// With --store: the slots of a process that was killed return after this long (default 20s, at least 5s); a longer request renews its own
    #[arg(
        long,
        value_name = "TIME",
        requires = "store",
        conflicts_with = "coordinator",
        allow_hyphen_values = true
    )]
    pub(crate) lease: Option<Span>,
    /// The coordinator's token is in FILE; `POLITELY_TOKEN` may hold it instead
    #[arg(
        long,
        value_name = "FILE",
        requires = "coordinator",
        conflicts_with = "store"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// Which requests go again, and when
    #[arg(long, value_enum)]
    pub(crate) retry: Option<RetryName>,
    /// Attempts after the first, per URL
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) retries: Option<u32>,
    /// Fail a host's URLs when it serves nothing for this long while it is asked (default 15m)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) give_up_after: Option<Span>,
    /// Longest time for one attempt, to the last byte (default 30s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Span>,
    /// Largest body, decoded (default 16MiB); a longer one is dropped and its URL fails
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_body: Option<Size>,
    /// Send through this proxy (http, https, socks5); several take turns, attempt by attempt
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Vec<String>,
    /// Do not fetch or obey robots.txt
    #[arg(long)]
    pub(crate) no_robots: bool,
    /// The User-Agent of every request; robots.txt rules are looked up by the product token in it
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Option<String>,
    /// Look robots.txt rules up by this product token, whatever --user-agent says
    #[arg(long, value_name = "NAME")]
    pub(crate) robots_token: Option<String>,
    /// Keep no cookies and send none
    #[arg(long)]
    pub(crate) no_cookies: bool,
    /// Keep bodies under DIR, one folder per host
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// One JSON line per URL to FILE (`-` is standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How the end is told
    #[arg(long, value_enum)]
    pub(crate) summary: Option<SummaryForm>,
    /// Keep the run's state in DIR: a killed run started again with the same DIR goes on where it was
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Flags and file, layered and checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) numbers: OperatorNumbers,
    pub(crate) law: Option<LawName>,
    pub(crate) key: KeyKind,
    /// Requests in flight over all hosts.
    pub(crate) concurrency: u32,
    /// Requests per second over all hosts.
    pub(crate) global_rps: Option<f64>,
    pub(crate) sites: SiteList,
    /// Who keeps the hosts' limits, if not this process.
    pub(crate) coordinator: Option<String>,
    /// The engine's URL.
    pub(crate) store: Option<String>,
    pub(crate) store_password_file: Option<PathBuf>,
    pub(crate) store_away: StoreAway,
    pub(crate) lease: Option<Duration>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) retry: RetryName,
    pub(crate) retries: Option<u32>,
    /// A host that serves nothing for this long is given up.
    pub(crate) give_up_after: Duration,
    pub(crate) timeout: Duration,
    /// Bytes.
    pub(crate) max_body: u64,
    pub(crate) proxies: Vec<String>,
    pub(crate) robots: bool,
    pub(crate) user_agent: String,
    /// The product token that robots.txt rules are looked up by.
    pub(crate) robots_token: String,
    pub(crate) cookies: bool,
    pub(crate) save: Option<PathBuf>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) summary: SummaryForm,
    pub(crate) state: Option<PathBuf>,
}

/// In flight over all hosts when nothing is said: enough to keep a small machine's cores busy with pages of a
/// few kilobytes, and few enough descriptors for the usual limit of 1,024.
const CONCURRENCY_DEFAULT: u32 = 256;
/// Each request in flight holds a socket and its buffers.
const CONCURRENCY_MAX: u32 = 65_536;
/// Longer than a deployment or the restart of a machine takes; a dead host must not hold a run for
/// hours.
const GIVE_UP_AFTER_DEFAULT: Duration = Duration::from_mins(15);
/// A renewal is sent when a third is left, and may wait a second for the engine.
const STORE_LEASE_MIN: Duration = Duration::from_secs(5);
/// Longer than a slow page takes, short enough that a dead host costs little.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Larger than nearly every page; it bounds what one URL may cost.
const MAX_BODY_DEFAULT: u64 = 16 << 20;
/// Says who we are and where to complain.
const USER_AGENT: &str = concat!(
    "politely/",
    env!("CARGO_PKG_VERSION"),
    " (+https://github.com/politely/politely)"
);

impl Settings {
    /// Flags over the file that `--config` names.
    pub(crate) fn layered(file: Option<&Path>, flags: Knobs) -> Result<Self, Wrong> {
        let file = file.map_or_else(|| Ok(Knobs::default()), read)?;
        Self::checked(flags.over(file)).map_err(Wrong)
    }

    pub(crate) fn checked(knobs: Knobs) -> Result<Self, String> {
        knobs.all_in_force()?;
        let numbers = OperatorNumbers {
            rate: knobs.rate,
            burst: knobs.burst,
            in_flight: knobs.in_flight,
            ..OperatorNumbers::default()
        };
        sound(numbers)?;
        within(
            "concurrency",
            knobs.concurrency.map(f64::from),
            1.0,
            f64::from(CONCURRENCY_MAX),
        )?;
        within("retries", knobs.retries.map(f64::from), 0.0, 1e3)?;
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
        let profile = knobs.profile.unwrap_or_default();
        let by_memory = knobs.memory_cap.map(in_flight_by_memory);
        let global_rps = knobs.max_rps.map(|rps| rps.clamp(2.0, 16.0));
        let concurrency = [
            knobs.concurrency,
            by_memory,
            global_rps.map(|rps| rps as u32),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(CONCURRENCY_DEFAULT);
        Ok(Self {
            profile,
            numbers,
            law: knobs.law,
            key: knobs.key.unwrap_or_default(),
            concurrency,
            global_rps,
            sites: knobs.site_rps.unwrap_or_default(),
            coordinator: knobs.coordinator,
            store: knobs.store,
            store_password_file: knobs.store_password_file,
            store_away: knobs.store_away.unwrap_or_default(),
            lease: knobs.lease.map(|span| span.0),
            token_file: knobs.token_file,
            retry: knobs.retry.unwrap_or_default(),
            retries: knobs.retries,
            give_up_after: (knobs.give_up_after).map_or(GIVE_UP_AFTER_DEFAULT, |span| span.0),
            timeout: knobs.timeout.map_or(TIMEOUT_DEFAULT, |span| span.0),
            max_body: knobs.max_body.map_or(MAX_BODY_DEFAULT, |size| size.0),
            proxies: knobs.proxy,
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

/// The job scraper's table (DESIGN, mission line 1).
fn in_flight_by_memory(memory: Memory) -> u32 {
    match memory.0 {
        0..=256_000_000 => 3,
        256_000_001..=512_000_000 => 5,
        512_000_001..=1_000_000_000 => 8,
        _ => 12,
    }
}

/// Are an operator's numbers within their bounds? If not: which flag is not.
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

impl Knobs {
    /// Refuses settings without an effect beside the others, whether from a flag or the file.
    fn all_in_force(&self) -> Result<(), String> {
        let of_keys = [
            ("rate", self.rate.is_some()),
            ("burst", self.burst.is_some()),
            ("in-flight", self.in_flight.is_some()),
            ("law", self.law.is_some()),
        ];
        let of_store = [
            ("lease", self.lease.is_some()),
            ("store-away", self.store_away.is_some()),
        ];
        let given = |of: &[(&'static str, bool)]| {
            let mut of = of.iter();
            of.find(|(_, given)| *given).map(|(name, _)| *name)
        };
        if self.coordinator.is_some() && self.store.is_some() {
            return Err("--store cannot be combined with --coordinator; give one".to_owned());
        }
        if self.coordinator.is_some()
            && let Some(name) = given(&of_keys)
        {
            return Err(format!(
                "--{name} cannot be combined with --coordinator; set it on `politely serve`"
            ));
        }
        if self.store.is_none()
            && let Some(name) = given(&of_store)
        {
            return Err(format!("--{name} has an effect only with --store"));
        }
        if self.coordinator.is_none() && self.token_file.is_some() {
            return Err("--token-file has an effect only with --coordinator".to_owned());
        }
        match &self.lease {
            Some(lease) if lease.0 < STORE_LEASE_MIN => Err(format!(
                "--lease {:?}: must be at least {:?}",
                lease.0, STORE_LEASE_MIN
            )),
            _ => Ok(()),
        }
    }

    /// These, and where they say nothing, `under`.
    fn over(self, under: Self) -> Self {
        Self {
            profile: self.profile.or(under.profile),
            rate: self.rate.or(under.rate),
            burst: self.burst.or(under.burst),
            in_flight: self.in_flight.or(under.in_flight),
            law: self.law.or(under.law),
            key: self.key.or(under.key),
            concurrency: self.concurrency.or(under.concurrency),
            max_rps: self.max_rps.or(under.max_rps),
            site_rps: self.site_rps.or(under.site_rps),
            memory_cap: self.memory_cap.or(under.memory_cap),
            coordinator: self.coordinator.or(under.coordinator),
            store: self.store.or(under.store),
            store_password_file: self.store_password_file.or(under.store_password_file),
            store_away: self.store_away.or(under.store_away),
            lease: self.lease.or(under.lease),
            token_file: self.token_file.or(under.token_file),
            retry: self.retry.or(under.retry),
            retries: self.retries.or(under.retries),
            give_up_after: self.give_up_after.or(under.give_up_after),
            timeout: self.timeout.or(under.timeout),
            max_body: self.max_body.or(under.max_body),
            proxy: if self.proxy.is_empty() {
                under.proxy
            } else {
                self.proxy
            },
            no_robots: self.no_robots || under.no_robots,
            user_agent: self.user_agent.or(under.user_agent),
            robots_token: self.robots_token.or(under.robots_token),
            no_cookies: self.no_cookies || under.no_cookies,
            save: self.save.or(under.save),
            output: self.output.or(under.output),
            summary: self.summary.or(under.summary),
            state: self.state.or(under.state),
        }
    }
}

fn read(path: &Path) -> Result<Knobs, Wrong> {
    let text = std::fs::read_to_string(path).map_err(|why| Wrong::file(path, &why))?;
    parse(&text).map_err(|(line, why)| Wrong(format!("{}:{line}: {why}", path.display())))
}

/// The settings in `text`, or the line that is wrong (from 1) and why.
pub(crate) fn parse(text: &str) -> Result<Knobs, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        (line, in_one_line(error.message()))
    })
}

/// A reader's error as one line; an unknown key names the nearest known one instead of all of them.
fn in_one_line(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field")
        && let Some(key) = quoted.next()
    {
        let nearest = quoted
            .map(|known| (strsim::damerau_levenshtein(key, known), known))
            .filter(|&(distance, known)| distance <= known.len().max(key.len()) / 2)
            .min();
        return match nearest {
            Some((_, known)) => format!("unknown key `{key}`; did you mean `{known}`?"),
            None => format!("unknown key `{key}`; `politely fetch --help` names them all"),
        };
    }
    message
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests;
