//! Counts of answers by status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most statuses that are counted apart.
const STATUSES_MAX: usize = 32;
/// The number for requests without a response.
const NONE: u16 = 0;
/// The number for all statuses beyond the first [`STATUSES_MAX`].
const OTHER: u16 = u16::MAX;

/// How many answers came, by status: `{"200": 1150, "429": 12, "none": 3}`.
///
/// `none` counts requests without a response. At most 32 statuses are counted apart, and `other`
/// counts the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct StatusCounts(Vec<(u16, u64)>);

impl StatusCounts {
    /// Counts an answer with `status`, or a request without a response.
    pub fn count(&mut self, status: Option<u16>) {
        self.add_number(status.unwrap_or(NONE), 1);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (status, answers) in &other.0 {
            self.add_number(*status, *answers);
        }
    }

    /// Returns whether nothing was counted.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each status and its count, the lowest status first.
    pub fn iter(&self) -> impl Iterator<Item = (String, u64)> {
        let named = |(status, answers): &(u16, u64)| {
            let name = match *status {
                NONE => "none".to_owned(),
                OTHER => "other".to_owned(),
                status => status.to_string(),
            };
            (name, *answers)
        };
        self.0.iter().map(named)
    }

    fn add_number(&mut self, status: u16, answers: u64) {
        let place = |counts: &[(u16, u64)], status| {
            counts.binary_search_by_key(&status, |(status, _)| *status)
        };
        match place(&self.0, status) {
            Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(answers),
            Err(_) if self.0.len() >= STATUSES_MAX && status != OTHER => {
                self.add_number(OTHER, answers);
            }
            Err(place) => {
                // Most keys have one or two statuses.
                self.0.reserve_exact(1);
                self.0.insert(place, (status, answers));
            }
        }
    }
}

impl From<BTreeMap<String, u64>> for StatusCounts {
    fn from(counts: BTreeMap<String, u64>) -> Self {
        let mut read = Self::default();
        for (name, answers) in counts {
            let status = match name.as_str() {
                "none" => NONE,
                name => name.parse().unwrap_or(OTHER),
            };
            read.add_number(status, answers);
        }
        read
    }
}

impl From<StatusCounts> for BTreeMap<String, u64> {
    fn from(counts: StatusCounts) -> Self {
        counts.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_bounded_and_no_answer_is_lost() {
        let mut counts = StatusCounts::default();
        counts.count(None);
        for status in 100..999 {
            counts.count(Some(status));
            counts.count(Some(status));
        }
        assert_eq!(counts.0.len(), STATUSES_MAX + 1);
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!(twice.iter().map(|(_, answers)| answers).sum::<u64>(), 3_598);
        let json = serde_json::to_string(&counts).unwrap();
        assert!(json.starts_with(r#"{"100":2,"101":2,"#), "{json}");
        assert!(json.contains(r#""none":1,"other":"#), "{json}");
        assert_eq!(serde_json::from_str::<StatusCounts>(&json).unwrap(), counts);
    }
}
