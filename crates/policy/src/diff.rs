//! The differences between two policies.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Rule, RuleBook};

/// Returns one line for each pattern whose rule differs: `+` is new, `-` is gone, `~` has changed.
///
/// The order of rules, their lines and their comments do not matter.
pub fn differences(old: &RuleBook, new: &RuleBook) -> Vec<String> {
    let (old, new) = (by_pattern(old), by_pattern(new));
    let mut lines = Vec::new();
    for (pattern, rule) in &old {
        let is_same = |other: &Rule| {
            rule.keys == other.keys
                && rule.answers == other.answers
                && rule.block_share == other.block_share
                && words(rule) == words(other)
        };
        match new.get(pattern) {
            None => lines.push(format!("- {pattern}: {}", words(rule))),
            Some(other) if !is_same(other) => {
                lines.push(format!("~ {pattern}: {} -> {}", words(rule), words(other)));
            }
            Some(_) => {}
        }
    }
    for (pattern, rule) in &new {
        if !old.contains_key(pattern) {
            lines.push(format!("+ {pattern}: {}", words(rule)));
        }
    }
    lines
}

fn by_pattern(book: &RuleBook) -> BTreeMap<&str, &Arc<Rule>> {
    let rules = book.rules().iter();
    let patterns = rules.flat_map(|rule| {
        let patterns = rule.patterns.iter();
        patterns.map(move |pattern| (pattern.as_str(), rule))
    });
    patterns.collect()
}

/// Returns what a rule says, on one line.
pub(super) fn words(rule: &Rule) -> String {
    let mut text = if rule.limits.is_empty() {
        "no limits".to_owned()
    } else {
        rule.limits.to_string()
    };
    if !rule.costs.is_empty() {
        _ = write!(text, ", cost {}", rule.costs);
    }
    if !rule.learn {
        text.push_str(", learns nothing");
    }
    if let Some(scope) = &rule.scope {
        _ = write!(text, ", scope {}", scope.as_str());
    }
    for key in rule.keys.iter().skip(usize::from(rule.has_account)) {
        _ = write!(text, ", {key}");
    }
    if let Some(spacing) = rule.spacing {
        _ = write!(text, ", {} spacing", spacing.as_str());
    }
    for (i, (group, weight)) in rule.share.iter().enumerate() {
        _ = write!(
            text,
            "{}{group} {weight}",
            if i == 0 { ", shares " } else { " : " }
        );
    }
    // Writing to a `String` cannot fail.
    _ = write!(text, "{}", rule.trouble);
    match rule.answers.len() {
        0 => {}
        1 => text.push_str(", 1 rule about answers"),
        count => _ = write!(text, ", {count} rules about answers"),
    }
    if !rule.resend.is_empty() {
        let methods: Vec<&str> = rule.resend.iter().map(http::Method::as_str).collect();
        _ = write!(text, ", resends {}", methods.join(" "));
    }
    text
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&words(self))
    }
}
