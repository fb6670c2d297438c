//! The arguments of `politely proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use politely::DeclaredLimits;

#[cfg(feature = "proxy")]
use crate::config::Knobs;
use crate::config::{Labels, LawName, OnUnavailableName, Profile, StoreUnavailable};
use crate::log::Form;
use crate::units::{RateText, Span, number, whole};

/// Limit the requests of programs in any language: a gateway to APIs, and a forward proxy.
///
/// A request waits until its host's limits allow it, and a refused request is sent again, as with
/// `politely fetch`. With `--route openai=https://api.openai.com`, the base URL
/// `http://127.0.0.1:7078/openai` leads there. `http_proxy=http://127.0.0.1:7078` limits plain
/// URLs. Of https URLs through `https_proxy`, only connections are limited: what is inside is
/// encrypted.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  An API at its documented limits, for any SDK with a base URL (http://127.0.0.1:7078/openai/v1):
    politely proxy --route openai=https://api.openai.com --preset openai
  All programs of this machine, with the limits of a coordinator:
    politely proxy --route api=https://api.example.com --coordinator http://127.0.0.1:7077

Exit codes:
  0  ended as asked (Ctrl-C, SIGTERM)
  2  wrong usage, an unusable address, policy or token file; nothing was served")]
pub(crate) struct ProxyArgs {
    /// Address to listen on; any address but loopback needs --token-file
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7078")]
    pub(crate) listen: SocketAddr,
    /// Send requests of /NAME/… to URL/…; may be repeated
    #[arg(long, value_name = "NAME=URL", value_parser = route)]
    pub(crate) route: Vec<(String, String)>,
    /// Longest wait of a request for its limits; then the answer is 429 with the reason. Requests
    /// may ask for less with `Prefer: wait=SECONDS`, and without --wait for more (default 60s)
    #[arg(long, value_name = "TIME", value_parser = wait_time, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Maximum time from sending a request to the head of its answer
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) timeout: Span,
    /// Accept only callers with a token in FILE, as for `politely serve`: the password of
    /// Proxy-Authorization, or the header X-Politely-Token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let the forward proxy and /https://… reach private, loopback and link-local addresses
    #[arg(long)]
    pub(crate) allow_private: bool,
    /// Leave the headers politely-wait-ms, politely-key and politely-reason out of answers
    #[arg(long)]
    pub(crate) no_wait_headers: bool,
    /// Defaults to start from (default: crawler)
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,
    /// How a key's limit is learned (default: discover)
    #[arg(long, value_enum)]
    pub(crate) law: Option<LawName>,
    /// Maximum requests per second and key; 5000/h is that many in any hour, evenly spread
    #[arg(long, value_name = "RPS", allow_hyphen_values = true)]
    pub(crate) rate: Option<RateText>,
    /// Further limits of each key, which all hold: "10/s; 1000/day@UTC; 5MB/s; 100 concurrent"
    #[arg(long, value_name = "N/TIME;…", allow_hyphen_values = true)]
    pub(crate) limits: Option<DeclaredLimits>,
    /// Requests that a key may send at once after a pause
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub(crate) burst: Option<f64>,
    /// Maximum requests in flight per key
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) in_flight: Option<u32>,
    /// Maximum retries per request
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub(crate) retries: Option<u32>,
    /// Take rules of limits from FILE (docs/reference/policy.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Take the rules of a known API (politely presets list)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["policy", "coordinator"])]
    pub(crate) preset: Option<String>,
    /// Values for the names of keys in a policy, for all requests: `token_name=ci,team=a`
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub(crate) labels: Option<Labels>,
    /// Share limits with other processes: the coordinator (politely serve) at URL keeps them
    #[arg(long, value_name = "URL,…")]
    pub(crate) coordinator: Option<String>,
    /// Read the coordinator's token from FILE (default: `POLITELY_TOKEN`)
    #[arg(long, value_name = "FILE", requires = "coordinator")]
    pub(crate) coordinator_token_file: Option<PathBuf>,
    /// While no coordinator answers: send nothing (wait), go on with this worker's share (share),
    /// or answer 503 (stop)
    #[arg(long, value_enum, value_name = "WHAT", requires = "coordinator")]
    pub(crate) on_unavailable: Option<OnUnavailableName>,
    /// Name of this proxy in the coordinator's list of workers
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Share limits with other processes: cells of the engine at URL keep them (redis://…,
    /// postgres://… or zookeeper://…; docs/how-to/run-a-fleet.md)
    #[arg(long, value_name = "URL", conflicts_with = "coordinator")]
    pub(crate) store: Option<String>,
    /// Read the engine's password from FILE (default: `POLITELY_STORE_PASSWORD`)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// While that engine is unavailable: send nothing (closed), or let each process use its share
    /// for at most a minute
    #[arg(long, value_enum, value_name = "WHAT", requires = "store")]
    pub(crate) store_unavailable: Option<StoreUnavailable>,
    /// Form of the messages on standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    pub(crate) log: Form,
}

#[cfg(feature = "proxy")]
impl ProxyArgs {
    /// Returns the settings of the limits, in the form that all commands check and apply.
    pub(crate) fn knobs(&mut self) -> Knobs {
        Knobs {
            profile: self.profile,
            law: self.law,
            rate: self.rate.take(),
            limits: self.limits.take(),
            burst: self.burst,
            in_flight: self.in_flight,
            retries: self.retries,
            policy: self.policy.take(),
            labels: self.labels.take(),
            coordinator: self.coordinator.take(),
            token_file: self.coordinator_token_file.take(),
            on_unavailable: self.on_unavailable,
            client: self.client.take(),
            store: self.store.take(),
            store_password_file: self.store_password_file.take(),
            store_unavailable: self.store_unavailable,
            ..Knobs::default()
        }
    }
}

/// Reads a time, or 0.
fn wait_time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    text.parse::<Span>().map(|span| span.0)
}

/// Reads `NAME=URL`. The URL is checked later: an error of an argument repeats all of it, and a URL
/// may have a login.
pub(super) fn route(text: &str) -> Result<(String, String), String> {
    let (name, url) = text
        .split_once('=')
        .ok_or_else(|| "write a route as NAME=URL".to_owned())?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_word) {
        return Err("a route's name has letters, digits, `.`, `_` and `-` only".to_owned());
    }
    Ok((name.to_owned(), url.to_owned()))
}
