//! The names of the keys.
//!
//! | key | holds |
//! | --- | --- |
//! | `pf:{crawls}` | name of a crawl -> its id, and 1 if it is paused |
//! | `pf:{token}` | the last fencing token |
//! | `pf:unit:N` | the domain of the unit N, until a minute after its lease |
//! | `pf:{CRAWL/DOMAIN}:d`, `:p`, `:q`, `:u` | a domain: state, pages, queue, units |
//! | `pf:{CRAWL#SHARD}:m`, `:n` | a shard of a crawl's schedule: domains' summaries and names |
//! | `pf:{CRAWL#SHARD}:w`, `:r`, `:o` | its domains that wait, may be handed out, and have units |
//! | `pf:{CRAWL#SHARD}:c` | the sums of its summaries |
//! | `pf:{mend}:t`, `:c` | the walk over all keys: its process, and its cursor per server |

use std::fmt;

use politely_frontier::Token;
use xxhash_rust::xxh3::xxh3_64;

/// The shards of each crawl's schedule. They spread over the masters of a cluster.
pub(super) const SHARDS: u32 = 16;

pub(super) const CRAWLS: &str = "pf:{crawls}";
pub(super) const LAST_TOKEN: &str = "pf:{token}";
pub(super) const MEND_TURN: &str = "pf:{mend}:t";
pub(super) const MEND_CURSORS: &str = "pf:{mend}:c";

pub(super) fn unit(token: Token) -> String {
    format!("pf:unit:{token}")
}

/// The id of a crawl. A crawl that is deleted and created again has another id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CrawlId(pub(super) String);

impl fmt::Display for CrawlId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The names of a domain's keys: state, pages, queue, units.
pub(super) fn domain(crawl: &CrawlId, domain: &str) -> [String; 4] {
    ["d", "p", "q", "u"].map(|part| format!("pf:{{{crawl}/{domain}}}:{part}"))
}

/// The names of a shard's keys: summaries, names, waiting, runnable, sums, owned.
pub(super) fn shard(crawl: &CrawlId, shard: u32) -> [String; 6] {
    ["m", "n", "w", "r", "c", "o"].map(|part| format!("pf:{{{crawl}#{shard}}}:{part}"))
}

/// Returns the shard of a domain.
pub(super) fn shard_of(domain: &str) -> u32 {
    (xxh3_64(domain.as_bytes()) % u64::from(SHARDS)) as u32
}

/// What a key belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The state of a domain.
    Domain(CrawlId, String),
    /// A part of a shard.
    Shard(CrawlId),
}

/// Returns the place of a key, if it is a domain's state or a part of a shard.
pub(super) fn place(key: &str) -> Option<Place> {
    let rest = key.strip_prefix("pf:{")?;
    let end = rest.find(['/', '#'])?;
    let (crawl, rest) = rest.split_at(end);
    let crawl = CrawlId(crawl.to_owned());
    if rest.starts_with('#') {
        return Some(Place::Shard(crawl));
    }
    let domain = rest[1..].strip_suffix("}:d")?;
    Some(Place::Domain(crawl, domain.to_owned()))
}

#[cfg(test)]
mod tests {
    use redis::cluster_routing::Slot;

    use super::*;

    #[test]
    fn all_keys_of_a_domain_or_a_shard_are_in_one_slot() {
        let crawl = CrawlId("a1".to_owned());
        for name in ["example.com", "account:{x}/y", "}", "a#b"] {
            let keys = domain(&crawl, name);
            assert!(
                keys.iter()
                    .all(|key| Slot::for_key(key) == Slot::for_key(&keys[0]))
            );
            let found = Place::Domain(crawl.clone(), name.to_owned());
            assert_eq!(place(&keys[0]), Some(found));
            assert_eq!(place(&keys[1]), None);
        }
        let keys = shard(&crawl, 3);
        assert!(
            keys.iter()
                .all(|key| Slot::for_key(key) == Slot::for_key(&keys[0]))
        );
        assert_eq!(place(&keys[4]), Some(Place::Shard(crawl)));
        assert_eq!(place(CRAWLS), None);
        assert_eq!(place(&unit(Token(3))), None);
    }
}
