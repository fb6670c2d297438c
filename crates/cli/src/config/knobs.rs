//! The settings as flags and as keys of the file.

use std::path::PathBuf;

use clap::Args;
use politely::DeclaredLimits;
use politely::policy::{
    BackoffSetting, BreakerSetting, JitterSetting, RetryBudgetSetting, of_flag,
};
use serde::Deserialize;

use super::FailedPages;
use super::Labels;
use super::bounds::Accepted;
use super::connect::Resolve;
use super::site::Scope;
use super::words::{
    KeyKind, LawName, OnUnavailableName, Profile, ProxyBy, RetryName, StoreUnavailable, SummaryForm,
};
use crate::site_rps::SiteList;
use crate::units::{Age, Memory, RateText, Size, Span, number, whole};

/// All settings of the flags and the file.
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Knobs {
    /// Method of every request (default: GET; with a body POST)
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Add a header field to every request; @FILE reads secret ones from FILE, one a line
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Send the token in FILE: `Authorization: Bearer …`
    #[arg(long, value_name = "FILE")]
    pub(crate) bearer_file: Option<PathBuf>,
    /// Send the login USER:PASSWORD in FILE: `Authorization: Basic …`
    #[arg(long, value_name = "FILE")]
    pub(crate) basic_file: Option<PathBuf>,
    /// Body of every request
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,
    /// Send the bytes of FILE as the body of every request
    #[arg(long, value_name = "FILE")]
    pub(crate) data_file: Option<PathBuf>,
    /// Give each POST and PATCH an Idempotency-Key, the same for all its attempts, and retry it
    #[arg(long)]
    pub(crate) idempotency_key: bool,
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
    /// Maximum time for one attempt, to the last byte (default 30s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Span>,
    /// Maximum size of a decoded body (default 16MiB); a longer one is dropped and its URL fails
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_body: Option<Size>,
    /// Statuses that count as fetched: `200,404` or `2xx` (default: 2xx)
    #[arg(long, value_name = "STATUS,…")]
    pub(crate) accept: Option<Accepted>,
    /// Maximum redirects of a page (default 10)
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) max_redirects: Option<u32>,
    /// End the run after TIME; what is in flight is finished
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) deadline: Option<Span>,
    /// Take at most N new pages from the input
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) max_pages: Option<u32>,
    /// End the run when its bodies have SIZE together; what is in flight is finished
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_bytes: Option<Size>,
    /// Fetch only URLs that match REGEX
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(crate) include: Vec<String>,
    /// Fetch no URL that matches REGEX
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(crate) exclude: Vec<String>,
    /// Fetch the pages that the sitemap or feed at URL names
    #[arg(long, value_name = "URL")]
    pub(crate) sitemap: Vec<String>,
    /// Fetch the pages of the sitemaps that the robots.txt of each host names
    #[arg(long)]
    pub(crate) sitemaps: bool,
    /// Follow the links of pages: within their host, their registrable domain, or the folder of the
    /// URL
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub(crate) follow: Option<Scope>,
    /// Maximum links from a URL of the input to a page (default 16)
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) depth: Option<u32>,
    /// Maximum pages of one host, beyond which links and sitemaps add none (default 1000000)
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) pages_per_host: Option<u32>,
    /// Maximum time to connect, TLS included (default 10s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) connect_timeout: Option<Span>,
    /// Trust the authorities in FILE (PEM) as well as this machine's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Accept every certificate, so that anyone on the way may answer
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Speak HTTP/1.1 only
    #[serde(rename = "http1.1")]
    #[arg(long = "http1.1")]
    pub(crate) http1: bool,
    /// Connect to ADDRESS for HOST:PORT
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub(crate) resolve: Vec<Resolve>,
    /// Connect to IPv4 addresses only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Connect to IPv6 addresses only
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
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
    /// Write all requests and answers to WARC files: FILE with a number before its ending
    #[arg(long, value_name = "FILE")]
    pub(crate) warc: Option<PathBuf>,
    /// Size from which on the next WARC file begins (default 1GiB)
    #[arg(long, value_name = "SIZE")]
    pub(crate) warc_size: Option<Size>,
    /// Write one JSON line per URL to FILE (`-` is standard output), or CSV to FILE.csv
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Header field of the last answer to put into each result line; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) row_header: Vec<String>,
    /// Form of the summary at the end
    #[arg(long, value_enum)]
    pub(crate) summary: Option<SummaryForm>,
    /// Keep the run's state in DIR: a killed run continues when it is started again with the same
    /// DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Fetch the pages of --state again, and each body only if the page has changed
    #[arg(long)]
    pub(crate) again: bool,
    /// With --again: fetch only pages again that were fetched longer than TIME ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<Age>,
    /// Try the failed pages of --state again: all, or those with a status (503, 5xx) or words of
    /// their reason
    #[arg(
        long,
        value_name = "REASON,…",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    pub(crate) retry_failed: Option<FailedPages>,
    /// With --again or --retry-failed: send requests again that may act twice, such as POST
    #[arg(long)]
    pub(crate) repeat_posts: bool,
}

/// Layers settings: the fields that are options, and then the others.
macro_rules! layered {
    ($over:ident, $under:ident, $($option:ident)*, $($other:ident: $value:expr),*) => {
        Self { $($option: $over.$option.or($under.$option),)* $($other: $value,)* }
    };
}

impl Knobs {
    /// Returns these settings, with `under` for each one that is not set.
    pub(super) fn over(self, under: Self) -> Self {
        let proxy = [self.proxy, under.proxy];
        let header = [self.header, under.header];
        let resolve = [self.resolve, under.resolve];
        let row_header = [self.row_header, under.row_header];
        let include = [self.include, under.include];
        let sitemap = [self.sitemap, under.sitemap];
        let exclude = [self.exclude, under.exclude];
        layered! {
            self, under,
            profile rate limits policy labels burst in_flight law key concurrency max_hosts max_rps
            site_rps memory_cap coordinator on_unavailable store store_password_file store_unavailable
            lease token_file client retry retries backoff jitter retry_budget breaker cut give_up_after
            timeout max_body accept max_redirects deadline max_pages max_bytes connect_timeout ca proxy_by method bearer_file basic_file data data_file user_agent robots_token save output summary state since retry_failed follow depth pages_per_host warc warc_size,
            proxy: proxy.into_iter().find(|proxies| !proxies.is_empty()).unwrap_or_default(),
            resolve: resolve.into_iter().find(|rules| !rules.is_empty()).unwrap_or_default(),
            row_header: row_header.into_iter().find(|names| !names.is_empty()).unwrap_or_default(),
            insecure: self.insecure || under.insecure,
            http1: self.http1 || under.http1,
            ipv4: self.ipv4 || under.ipv4 && !self.ipv6,
            ipv6: self.ipv6 || under.ipv6 && !self.ipv4,
            include: include.into_iter().find(|patterns| !patterns.is_empty()).unwrap_or_default(),
            exclude: exclude.into_iter().find(|patterns| !patterns.is_empty()).unwrap_or_default(),
            sitemap: sitemap.into_iter().find(|urls| !urls.is_empty()).unwrap_or_default(),
            sitemaps: self.sitemaps || under.sitemaps,
            header: header.into_iter().find(|fields| !fields.is_empty()).unwrap_or_default(),
            idempotency_key: self.idempotency_key || under.idempotency_key,
            again: self.again || under.again,
            repeat_posts: self.repeat_posts || under.repeat_posts,
            no_robots: self.no_robots || under.no_robots,
            no_cookies: self.no_cookies || under.no_cookies
        }
    }
}
