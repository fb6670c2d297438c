//! The part of a host that a response's quotas are about, if the response names one.
//!
//! GitHub counts its search API apart from all other calls (`x-ratelimit-resource: search`), and
//! Discord counts each route apart (`x-ratelimit-bucket`). A spent quota of one part says nothing
//! about the others. Core does not know which requests belong to a part: a caller that knows takes
//! the statement out of the report by [`Report::narrow`], and holds that part itself. Without that,
//! the statement is about the whole key.

use std::time::Duration;

use http::HeaderMap;

use super::{Quota, Quotas, Report, Signal, WAIT_MAX};

/// The longest name of a scope. The longest of GitHub's has 28 bytes, those of Discord have 32.
const NAME_MAX: usize = 64;

/// A part of a host with quotas of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A class of calls (GitHub's `search`). A refusal is by its limit only if its quota is spent:
    /// GitHub names it in the refusals of its secondary limits, too.
    Resource(ScopeName),
    /// A group of routes (Discord), counted apart for each first identifier in their paths. A
    /// refusal that names it is by its limit: Discord says so if a refusal is for all calls.
    Bucket(ScopeName),
}

/// The name of a scope: 1 to 64 ASCII letters, digits, `_`, `-`, `.` and `:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeName(Box<str>);

impl ScopeName {
    /// Reads a name. Returns `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        let is_name = (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        is_name.then(|| Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Scope {
    /// Returns the scope that a response names.
    ///
    /// A refusal for all calls names none, even beside a bucket.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
        let reach = value("x-ratelimit-scope");
        let is_global = value("x-ratelimit-global").is_some_and(|text| text == "true");
        if is_global || reach == Some("global") {
            return None;
        }
        let named = |name| ScopeName::read(value(name)?);
        let of_reach =
            || ScopeName::read(reach.filter(|reach| matches!(*reach, "user" | "shared"))?);
        let bucket = || named("x-ratelimit-bucket").or_else(of_reach);
        let resource = named("x-ratelimit-resource").map(Self::Resource);
        resource.or_else(|| bucket().map(Self::Bucket))
    }

    /// Returns its name.
    pub const fn name(&self) -> &ScopeName {
        match self {
            Self::Resource(name) | Self::Bucket(name) => name,
        }
    }
}

impl Report {
    /// Takes out what is said about [`Report::scope`] alone: its quotas, and a refusal by them.
    /// Returns how long nothing of the scope may leave, if there is such a time.
    ///
    /// The caller holds the requests of the scope. The rest of the report is about the whole key.
    pub fn narrow(&mut self) -> Option<Duration> {
        let scope = self.scope.take()?;
        let quotas = std::mem::take(&mut self.quotas);
        let is_by_them = matches!(scope, Scope::Bucket(_)) || quotas.iter().any(Quota::is_spent);
        self.stopped_by(&quotas, is_by_them)
    }

    /// Takes out what is said about one account among several on the host ([`Quota::of_account`]).
    /// Otherwise this is [`Report::narrow`].
    pub fn narrow_to_account(&mut self) -> Option<Duration> {
        let (own, others): (Vec<Quota>, Vec<Quota>) =
            self.quotas.iter().partition(|quota| quota.of_account);
        let is_by_them = !others.iter().any(Quota::is_spent);
        self.quotas = others.into_iter().collect();
        let own: Quotas = own.into_iter().collect();
        self.stopped_by(&own, is_by_them && own.iter().any(Quota::is_spent))
    }

    /// Returns how long `quotas` stop their requests. `is_by_them` means that a refusal is due to
    /// them.
    fn stopped_by(&mut self, quotas: &Quotas, is_by_them: bool) -> Option<Duration> {
        let is_refused = self.signal == Signal::RateLimited && self.retry_after.is_some();
        self.of_scope = is_refused && is_by_them;
        if self.of_scope {
            return self.retry_after;
        }
        let spent = quotas.spent_until().filter(|reset| !reset.is_zero());
        spent.map(|reset| reset.min(WAIT_MAX))
    }
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
