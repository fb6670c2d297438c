//! The quotas that a server names, each of a unit.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Quotas kept of one answer. The most that a known API sends of one kind is four.
pub const QUOTAS_MAX: usize = 4;

/// The unit of a quota.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Requests. Only such a quota paces requests.
    #[default]
    Requests,
    /// Tokens of a language model.
    Tokens,
    /// Bytes.
    Bytes,
    /// Points, credits or another measure of a request's cost.
    Points,
    /// Requests in flight at once. The remaining number says nothing about a time.
    Concurrency,
    /// Tokens that a language model reads.
    InputTokens,
    /// Tokens that a language model writes.
    OutputTokens,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 7] = [
        Self::Requests,
        Self::Tokens,
        Self::Bytes,
        Self::Points,
        Self::Concurrency,
        Self::InputTokens,
        Self::OutputTokens,
    ];

    /// Units of which a request costs several. A quota of them is a budget beside the declared
    /// ones.
    pub(crate) const OF_COSTS: [Self; 4] = [
        Self::Tokens,
        Self::Points,
        Self::InputTokens,
        Self::OutputTokens,
    ];

    /// Returns the unit that a word means, in the name of a header or of a declared unit.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "requests" | "request" | "req" | "reqs" | "calls" => Self::Requests,
            "tokens" | "token" => Self::Tokens,
            "input_tokens" => Self::InputTokens,
            "output_tokens" => Self::OutputTokens,
            "bytes" | "bandwidth" => Self::Bytes,
            "points" | "cost" | "complexity" | "credits" | "units" | "score" => Self::Points,
            "concurrent" | "concurrency" | "parallel" => Self::Concurrency,
            _ => return None,
        })
    }
}

/// A quota that the server named: at most `limit` of `unit` per `window`, with `remaining` left
/// until `reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// The unit that it counts.
    pub unit: Unit,
    /// The number allowed per window.
    pub limit: Option<u64>,
    /// The window.
    pub window: Option<Duration>,
    /// The number left.
    pub remaining: Option<u64>,
    /// Time until the quota is full again.
    pub reset: Option<Duration>,
    /// Whether it counts one account of several on the host, such as a project of `OpenAI`.
    pub of_account: bool,
}

impl Quota {
    /// Returns whether nothing is left of a quota that a wait restores.
    pub fn is_spent(&self) -> bool {
        self.remaining == Some(0) && self.unit != Unit::Concurrency
    }

    /// Returns the sustained rate, units per second. It is infinite if the quota names no time.
    fn sustained(&self) -> f64 {
        if self.remaining == Some(0) {
            return 0.0;
        }
        let per_second = |count: Option<u64>, span: Option<Duration>| match (count, span) {
            (Some(count), Some(span)) if !span.is_zero() => count as f64 / span.as_secs_f64(),
            _ => f64::INFINITY,
        };
        per_second(self.remaining, self.reset).min(per_second(self.limit, self.window))
    }

    /// Orders the tighter of two quotas first: spent ones, then quotas of requests, then by
    /// sustained rate.
    fn by_tightness(&self, other: &Self) -> Ordering {
        let left = |quota: &Self| quota.remaining.unwrap_or(u64::MAX);
        let is_first = |quota: &Self| (!quota.is_spent(), quota.unit != Unit::Requests);
        is_first(self)
            .cmp(&is_first(other))
            .then_with(|| self.sustained().total_cmp(&other.sustained()))
            .then_with(|| other.reset.cmp(&self.reset))
            .then_with(|| left(self).cmp(&left(other)))
            .then_with(|| {
                (self.unit, self.limit, self.window).cmp(&(other.unit, other.limit, other.window))
            })
    }
}

/// The quotas of one answer, at most [`QUOTAS_MAX`], the tightest first. A single quota needs no
/// allocation.
#[derive(Clone, Default, PartialEq)]
pub struct Quotas(Kept);

#[derive(Clone, Default, PartialEq)]
enum Kept {
    #[default]
    None,
    One(Quota),
    More(Box<[Quota]>),
}

impl Quotas {
    /// No quotas.
    pub const NONE: Self = Self(Kept::None);

    /// Returns the tightest quota of requests.
    pub fn of_requests(&self) -> Option<Quota> {
        self.iter()
            .copied()
            .find(|quota| quota.unit == Unit::Requests)
    }

    /// Returns the longest time until a spent quota is full again.
    pub fn spent_until(&self) -> Option<Duration> {
        let spent = self.iter().filter(|quota| quota.is_spent());
        spent.filter_map(|quota| quota.reset).max()
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(Kept::One(quota))
    }
}

impl From<Option<Quota>> for Quotas {
    fn from(quota: Option<Quota>) -> Self {
        quota.map_or(Self::NONE, Self::from)
    }
}

impl FromIterator<Quota> for Quotas {
    /// Collects the tightest [`QUOTAS_MAX`] quotas. A quota with neither limit nor remaining number
    /// is dropped.
    fn from_iter<I: IntoIterator<Item = Quota>>(quotas: I) -> Self {
        let mut named = quotas
            .into_iter()
            .filter(|quota| quota.limit.is_some() || quota.remaining.is_some());
        let Some(first) = named.next() else {
            return Self::NONE;
        };
        let Some(second) = named.next() else {
            return Self(Kept::One(first));
        };
        let mut all = vec![first, second];
        all.extend(named);
        all.sort_by(Quota::by_tightness);
        all.dedup();
        all.truncate(QUOTAS_MAX);
        match *all {
            [only] => Self(Kept::One(only)),
            _ => Self(Kept::More(all.into())),
        }
    }
}

impl Deref for Quotas {
    type Target = [Quota];

    fn deref(&self) -> &[Quota] {
        match &self.0 {
            Kept::None => &[],
            Kept::One(quota) => std::slice::from_ref(quota),
            Kept::More(quotas) => quotas,
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(unit: Unit, remaining: u64, reset_s: u64) -> Quota {
        Quota {
            unit,
            remaining: Some(remaining),
            reset: Some(Duration::from_secs(reset_s)),
            ..Quota::default()
        }
    }

    #[test]
    fn the_spent_come_first_then_requests_then_the_tightest() {
        let quotas: Quotas = [
            quota(Unit::Tokens, 1, 60),
            quota(Unit::Requests, 90, 9),
            quota(Unit::Requests, 9, 9),
            quota(Unit::Tokens, 0, 5),
            quota(Unit::Requests, 0, 3),
            quota(Unit::Concurrency, 0, 3),
        ]
        .into_iter()
        .collect();
        let order: Vec<_> = quotas
            .iter()
            .map(|quota| (quota.unit, quota.remaining.unwrap()))
            .collect();
        assert_eq!(
            order,
            [
                (Unit::Requests, 0),
                (Unit::Tokens, 0),
                (Unit::Requests, 9),
                (Unit::Requests, 90),
            ]
        );
        assert_eq!(quotas.spent_until(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn one_is_kept_inline_and_nothing_said_is_nothing_kept() {
        let one: Quotas = [Quota::default(), quota(Unit::Requests, 1, 1)]
            .into_iter()
            .collect();
        assert_eq!(one, Quotas::from(quota(Unit::Requests, 1, 1)));
        assert_eq!(Quotas::from_iter([Quota::default()]), Quotas::NONE);
        let both = [quota(Unit::Requests, 1, 1); 2];
        assert_eq!(both.into_iter().collect::<Quotas>().len(), 1);
    }
}
