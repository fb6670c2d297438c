//! The keys that a request names, the host's first: what a site is, and which rate an operator set.

use std::sync::Arc;

use politely::Key;
use politely::core::host::{KeyRule, OperatorNumbers};
use politely::core::key::KeyError;
use url::Url;

use super::Limits;
use crate::config::{KeyKind, Settings};
use crate::fetch::lanes::{KeySet, Lane};

impl Limits {
    /// Returns the keys of requests to `url`: one set, or one per egress. It returns none if the
    /// address must be resolved first.
    pub(crate) fn keys(&self, url: &Url) -> Result<Box<[KeySet]>, KeyError> {
        let host = Key::of_url(url)?;
        let first: Vec<Key> = match self.kind {
            KeyKind::Host => vec![host],
            KeyKind::Site => vec![Key::site_of_url(url)?],
            KeyKind::EgressHost if self.egresses.is_empty() => vec![host],
            KeyKind::EgressHost => {
                let each = self
                    .egresses
                    .iter()
                    .map(|egress| Key::egress_host(egress, host.as_str()));
                each.collect::<Result<_, _>>()?
            }
            // The address behind a proxy is unknown, so the host stands in for it.
            KeyKind::Address if !self.egresses.is_empty() => vec![host],
            KeyKind::Address => match url.host() {
                Some(url::Host::Ipv4(address)) => vec![Key::address(address.into())],
                Some(url::Host::Ipv6(address)) => vec![Key::address(address.into())],
                _ => Vec::new(),
            },
        };
        for key in &first {
            self.free_of_law(key, url);
        }
        Ok(first
            .into_iter()
            .map(|key| self.with_shared(key, url))
            .collect())
    }

    /// Lets the operator's rate of a site alone pace a host's key: the law does not climb to it
    /// first. Holds and breakers of the host apply. Without such a rate, the law is in force again.
    ///
    /// A fleet shares its key with processes that may have no such rate, so there it learns.
    fn free_of_law(&self, key: &Key, url: &Url) {
        let rule = self.paced_by_site.as_ref();
        let rule = rule.filter(|_| self.sites_of(url).next().is_some());
        if (rule.is_some() || self.is_kept) && !self.is_fleet() {
            // If there is no room for the key, a request for a permit fails with that error.
            let _ = self.limiter.follow_rule(key, rule);
        }
    }

    /// Returns `key`, followed by the operator's keys for sites of `url` and for the run. In a
    /// fleet, this process limits those alone.
    pub(crate) fn with_shared(&self, key: Key, url: &Url) -> KeySet {
        let mut set = vec![key];
        set.extend(self.sites_of(url).cloned());
        set.extend(self.run.clone());
        set.into_boxed_slice()
    }

    /// Returns the operator's keys for sites of `url`.
    fn sites_of<'a>(&'a self, url: &'a Url) -> impl Iterator<Item = &'a Key> {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let site = (!self.sites.is_empty())
            .then(|| Key::site_of_url(url).ok())
            .flatten();
        let covering = self.sites.iter().filter(move |(of, _)| {
            let domain = site
                .as_ref()
                .and_then(|key| key.as_str().strip_prefix("site/"));
            of.covers(host, domain)
        });
        covering.map(|(_, key)| key)
    }

    /// Returns the keys of a request of `lane`. With a Crawl-delay only the first egress has keys,
    /// because the delay is the host's, through whichever egress requests leave.
    pub(super) fn keys_now<'a>(&self, lane: &'a Lane) -> &'a [KeySet] {
        let Some(delay) = lane.robots.crawl_delay(self.now()) else {
            return &lane.keys;
        };
        let first = &lane.keys[..lane.keys.len().min(1)];
        for keys in first {
            // If there is no room for the key, a request for a permit fails with that error.
            let _ = self.limiter.crawl_delay(&keys[0], delay);
        }
        first
    }

    /// Returns the operator's rate for `lane`, in requests per second.
    pub(crate) fn operator_rps(&self, lane: &Lane) -> Option<f64> {
        let keys = lane.keys.first()?;
        self.sites
            .iter()
            .find(|(_, key)| keys.contains(key))
            .map(|(site, _)| site.rps)
    }
}

/// Returns a proxy's name without its credentials.
pub(super) fn egress_name(proxy: &str) -> String {
    Url::parse(proxy)
        .ok()
        .and_then(|url| {
            Some(format!(
                "{}:{}",
                url.host_str()?,
                url.port_or_known_default().unwrap_or(0)
            ))
        })
        .unwrap_or_else(|| "proxy".to_owned())
}

/// Returns what the hosts of an operator's sites follow, unless the operator set a law or numbers
/// for them as well.
pub(super) fn paced_by_site(settings: &Settings) -> Option<Arc<KeyRule>> {
    let has_none = settings.law.is_none() && settings.numbers == OperatorNumbers::default();
    has_none.then(|| {
        Arc::new(KeyRule {
            learn: false,
            ..KeyRule::default()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Knobs;

    /// Returns how many requests to a host with `--site-rps 127.0.0.1:5` may leave back to back.
    fn burst(knobs: Knobs) -> usize {
        let site_rps = Some("127.0.0.1:5".parse().unwrap());
        let settings = Settings::checked(Knobs { site_rps, ..knobs }).unwrap();
        let limits = Limits::new(&settings).unwrap();
        let keys = limits
            .keys(&Url::parse("http://127.0.0.1/").unwrap())
            .unwrap();
        let permits = (0..20).map(|_| limits.limiter.try_acquire(&keys[0][..]));
        permits.map_while(Result::ok).collect::<Vec<_>>().len()
    }

    #[test]
    fn a_site_with_a_rate_has_it_from_the_first_request_on() {
        assert_eq!(burst(Knobs::default()), 5);
    }

    #[test]
    fn a_law_or_a_number_of_the_operator_holds_beside_a_sites_rate() {
        let law = Some(crate::config::LawName::Discover);
        let learns = Knobs {
            law,
            ..Knobs::default()
        };
        assert!(burst(learns) < 5);
        let in_flight = Some(2);
        let few = Knobs {
            in_flight,
            ..Knobs::default()
        };
        assert!(burst(few) <= 2);
    }
}
