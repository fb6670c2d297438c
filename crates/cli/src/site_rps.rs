//! `--site-rps "linkedin:1,indeed:10"`: an operator's own rates per site.
//!
//! Each piece is `SITE:RPS`. A site with a dot is a host or a registrable domain: `example.co.uk`
//! covers `www.example.co.uk`. A site without a dot is the name before the public suffix:
//! `linkedin` covers `www.linkedin.com` and `linkedin.de`. RPS is the site's rate and its burst.
//! Clamped to 1-8, it is also the maximum of its requests in flight. These numbers come from the
//! job scraper that introduced the flag.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer};

/// One `SITE:RPS`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteRps {
    /// The site as written, in lower case.
    pub(crate) site: String,
    /// Requests per second; also the burst.
    pub(crate) rps: f64,
}

impl SiteRps {
    /// Returns the maximum of requests in flight: the rate, clamped to 1-8.
    pub(crate) fn in_flight(&self) -> u32 {
        self.rps.clamp(1.0, 8.0) as u32
    }

    /// Returns whether this site covers `host`, whose registrable domain is `domain`.
    pub(crate) fn covers(&self, host: &str, domain: Option<&str>) -> bool {
        if self.site.contains('.') || self.site.contains(':') {
            return host == self.site
                || host
                    .strip_suffix(&self.site)
                    .is_some_and(|sub| sub.ends_with('.'));
        }
        let name = domain.unwrap_or(host);
        name.split('.').next() == Some(self.site.as_str())
    }
}

/// The pieces of `--site-rps`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SiteList(pub(crate) Vec<SiteRps>);

impl FromStr for SiteList {
    type Err = String;

    /// Parses the list. Each bad piece gets its own line, so the user can correct all of them at
    /// once.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sites = Vec::new();
        let mut wrong = Vec::new();
        for piece in text.split(',').map(str::trim) {
            match parse_piece(piece) {
                Ok(site) if sites.iter().any(|known: &SiteRps| known.site == site.site) => {
                    wrong.push(format!("`{piece}`: `{}` is there twice", site.site));
                }
                Ok(site) => sites.push(site),
                Err(why) => wrong.push(format!("`{piece}`: {why}")),
            }
        }
        if wrong.is_empty() {
            Ok(Self(sites))
        } else {
            Err(wrong.join("\n  "))
        }
    }
}

fn parse_piece(piece: &str) -> Result<SiteRps, &'static str> {
    let (site, rps) = piece.rsplit_once(':').ok_or("must be SITE:RPS")?;
    let site = site.trim().trim_end_matches('.').to_lowercase();
    if site.is_empty() || site.contains(['/', ' ']) {
        return Err("the site's name is missing or is not a name");
    }
    if rps.trim().is_empty() {
        return Err("the number after the colon is missing");
    }
    let rps: f64 = rps.trim().parse().map_err(|_| "the rate is not a number")?;
    if rps.is_finite() && rps > 0.0 && rps <= 10_000.0 {
        Ok(SiteRps { site, rps })
    } else {
        Err("the rate must be more than 0 and at most 10000")
    }
}

impl<'de> Deserialize<'de> for SiteList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn site(site: &str, rps: f64) -> SiteRps {
        SiteRps {
            site: site.into(),
            rps,
        }
    }

    #[test]
    fn the_documented_form_is_read() {
        let list: SiteList = "linkedin:1, Indeed:10".parse().unwrap();
        assert_eq!(list.0, [site("linkedin", 1.0), site("indeed", 10.0)]);
        assert_eq!([list.0[0].in_flight(), list.0[1].in_flight()], [1, 8]);
        assert_eq!(site("x", 0.25).in_flight(), 1);
    }

    #[test]
    fn each_bad_piece_gets_its_own_line() {
        let said = "a:,b:-1,c:2,c:3,:4,d:x,e".parse::<SiteList>().unwrap_err();
        assert_eq!(said.lines().count(), 6, "{said}");
        assert!(said.contains("`a:`: the number after the colon is missing"));
        assert!(said.contains("`b:-1`: the rate must be more than 0"));
    }

    #[test]
    fn a_site_covers_its_hosts_and_no_others() {
        assert!(site("linkedin", 1.0).covers("www.linkedin.com", Some("linkedin.com")));
        assert!(!site("linkedin", 1.0).covers("linkedin.evil.com", Some("evil.com")));
        assert!(site("example.co.uk", 1.0).covers("www.example.co.uk", Some("example.co.uk")));
        assert!(!site("example.co.uk", 1.0).covers("badexample.co.uk", Some("badexample.co.uk")));
        assert!(site("127.0.0.1", 1.0).covers("127.0.0.1", None));
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_panic(text in "(\\PC{0,30}|[a-z.]{0,9}:[0-9.eE-]{0,5})(,[a-z.:]{0,9}:[0-9.eE-]{0,5}){0,4}") {
            for site in text.parse::<SiteList>().map_or_else(|_| Vec::new(), |list| list.0) {
                prop_assert!(site.rps > 0.0 && (1..=8).contains(&site.in_flight()));
                prop_assert!(site.covers(&site.site, Some(&site.site)));
            }
        }
    }
}
