//! The shares of groups of consumers: start-time fair queueing (Goyal, Vin and Cheng, 1996).
//!
//! Each request of a group gets a start tag: the later of the group's last finish tag and the key's
//! virtual time. Its finish tag is the start tag plus its cost over the group's weight. Requests
//! leave in the order of their start tags, and the virtual time is the start tag of the last one
//! that left. So a group that was idle earns no credit, and busy groups get the ratio of their
//! weights.

use std::collections::{BTreeMap, HashMap};

use toml::Spanned;

/// The largest weight of a group.
const WEIGHT_MAX: i64 = 1_000;
/// The length of a request of cost 1 and weight 1 in virtual time, in microseconds. It is divisible
/// by most weights, and short beside the time between two real arrivals.
const COST_US: u64 = 5_040;

/// The weights of the groups of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights(Vec<(String, u32)>);

impl Weights {
    /// Returns whether the rule has no shares.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the group of a consumer: the group of that name, or else the longest one that is
    /// followed by `-`, `.`, `/` or `:` in it. Consumers of no group share the weight 1.
    pub fn group_of(&self, consumer: &str) -> (&str, u32) {
        let is_of = |name: &str| match consumer.strip_prefix(name) {
            Some(rest) => rest.is_empty() || rest.starts_with(['-', '.', '/', ':']),
            None => false,
        };
        let groups = self.0.iter().filter(|(name, _)| is_of(name));
        let longest = groups.max_by_key(|(name, _)| name.len());
        longest.map_or(("", 1), |(name, weight)| (name, *weight))
    }

    /// Returns the names of the groups and their weights.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, weight)| (name.as_str(), *weight))
    }
}

/// The virtual time of one key, and the last finish tag of each of its groups.
#[derive(Clone, Debug)]
pub struct FairQueue {
    now: u64,
    finish: HashMap<String, u64>,
}

impl FairQueue {
    /// Returns a queue whose virtual time begins at `now_us`.
    pub fn new(now_us: u64) -> Self {
        Self {
            now: now_us,
            finish: HashMap::new(),
        }
    }

    /// Returns the start tag of the next request of a group.
    pub fn enter(&mut self, group: &str, weight: u32, cost: u16) -> u64 {
        let finish = self.finish.get(group).copied().unwrap_or_default();
        let start = finish.max(self.now);
        let end = start.saturating_add(length(weight, cost));
        match self.finish.get_mut(group) {
            Some(known) => *known = end,
            None => _ = self.finish.insert(group.to_owned(), end),
        }
        start
    }

    /// Gives back the length of a request that did not leave.
    pub fn give_back(&mut self, group: &str, weight: u32, cost: u16) {
        if let Some(finish) = self.finish.get_mut(group) {
            *finish = finish.saturating_sub(length(weight, cost));
        }
    }

    /// Notes that the request with this start tag left.
    pub fn left(&mut self, start: u64) {
        self.now = self.now.max(start);
        if self.finish.len() > 64 {
            let now = self.now;
            self.finish.retain(|_, finish| *finish > now);
        }
    }
}

fn length(weight: u32, cost: u16) -> u64 {
    (COST_US * u64::from(cost.max(1)) / u64::from(weight.max(1))).max(1)
}

/// Reads `{ interactive = 3, batch = 1 }`.
///
/// # Errors
/// A description of the mistake.
pub(super) fn read(written: &Spanned<BTreeMap<String, i64>>) -> Result<Weights, (usize, String)> {
    let at = written.span().start;
    let mut weights = Vec::new();
    for (name, weight) in written.get_ref() {
        let shown = name.escape_debug();
        if name.is_empty() || name.chars().count() > 128 {
            return Err((
                at,
                format!("share `{shown}`: a group has 1 to 128 characters"),
            ));
        }
        if !(1..=WEIGHT_MAX).contains(weight) {
            let why = format!("share `{shown}`: the weight must be from 1 to {WEIGHT_MAX}");
            return Err((at, why));
        }
        weights.push((name.clone(), *weight as u32));
    }
    if weights.len() == 1 {
        let why = "`share` has one group; name two, or remove it";
        return Err((at, why.to_owned()));
    }
    Ok(Weights(weights))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves the waiting request with the smallest tag, `count` times, while each group waits
    /// with `depth` requests. Returns how many each group got.
    fn serve(groups: &[(&str, u32, u16)], count: usize) -> Vec<usize> {
        let mut queue = FairQueue::new(7);
        let mut waiting: Vec<(u64, usize)> = Vec::new();
        for (i, (name, weight, cost)) in groups.iter().enumerate() {
            for _ in 0..4 {
                waiting.push((queue.enter(name, *weight, *cost), i));
            }
        }
        let mut served = vec![0; groups.len()];
        for _ in 0..count {
            let place = (0..waiting.len()).min_by_key(|at| waiting[*at]).unwrap();
            let (tag, i) = waiting.remove(place);
            queue.left(tag);
            served[i] += 1;
            let (name, weight, cost) = groups[i];
            waiting.push((queue.enter(name, weight, cost), i));
        }
        served
    }

    #[test]
    fn busy_groups_get_the_ratio_of_their_weights() {
        let served = serve(&[("interactive", 3, 1), ("batch", 1, 1)], 6_000);
        let ratio = served[0] as f64 / served[1] as f64;
        assert!((ratio - 3.0).abs() < 0.06, "{served:?}");
        // A request that costs twice takes twice the share.
        let served = serve(&[("a", 1, 2), ("b", 1, 1)], 3_000);
        let ratio = served[1] as f64 / served[0] as f64;
        assert!((ratio - 2.0).abs() < 0.04, "{served:?}");
    }

    #[test]
    fn an_idle_group_earns_no_credit() {
        let mut queue = FairQueue::new(0);
        for _ in 0..1_000 {
            let tag = queue.enter("batch", 1, 1);
            queue.left(tag);
        }
        // The next requests take turns, although the other group had nothing so far.
        let tags: Vec<u64> = (0..3).map(|_| queue.enter("interactive", 1, 1)).collect();
        let mine: Vec<u64> = (0..3).map(|_| queue.enter("batch", 1, 1)).collect();
        assert!(mine[0] < tags[2], "{mine:?} {tags:?}");
    }

    #[test]
    fn a_consumer_belongs_to_the_longest_group_of_its_name() {
        let weights = Weights(vec![("batch".to_owned(), 1), ("batch-x".to_owned(), 2)]);
        assert_eq!(weights.group_of("batch").0, "batch");
        assert_eq!(weights.group_of("batch-7").0, "batch");
        assert_eq!(weights.group_of("batch-x/1").0, "batch-x");
        assert_eq!(weights.group_of("batches"), ("", 1));
    }
}
