//! The pages that no line of the input names, and the way to each.

use politely_frontier::ValidPage;
use serde::{Deserialize, Serialize};
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use crate::fetch::crawl::metadata::Kind;
use crate::fetch::crawl::{domain_of, origin_of};
use crate::fetch::request::PageRequest;

/// A page that no line of the input names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Named {
    Page(Link),
    Sitemap(Sitemap),
}

/// The way to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// The number of links from a page of the input or of a sitemap.
    pub(crate) depth: u16,
    /// The length of the prefix of its URL that its links keep to, with `--follow prefix`.
    pub(crate) prefix: u16,
    /// Whether the way to it left the origin of the input. Secret fields are not sent then.
    pub(crate) is_away: bool,
}

/// A sitemap or a feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sitemap {
    pub(crate) url: Box<str>,
    /// The origin that the user named, or whose robots.txt names the sitemap.
    pub(crate) home: Box<str>,
    /// The number of indexes on the way to it.
    pub(crate) nesting: u8,
}

impl Sitemap {
    /// Returns the sitemap at `url` for the pages of the origin of `home`.
    pub(crate) fn of(url: &Url, home: &Url, nesting: u8) -> Self {
        Self {
            url: url.as_str().into(),
            home: origin_of(home).into(),
            nesting,
        }
    }

    /// Returns the number of its request. A page with the same URL is another page.
    pub(crate) fn id(&self) -> u128 {
        xxh3_128(format!("sitemap {}", self.url).as_bytes())
    }
}

impl Named {
    /// Returns the page as the crawl takes it.
    pub(crate) fn page(&self, url: &Url) -> Result<ValidPage, String> {
        let key = domain_of(url).map_err(|why| why.to_string())?;
        let page = ValidPage::of_url(url.clone(), key, self.stored());
        let mut page = page.map_err(|why| why.to_string())?;
        if let Self::Sitemap(sitemap) = self {
            page.url = PageRequest::known_as(sitemap.id());
        }
        Ok(page)
    }

    /// Returns whether its requests leave the origin of the input.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Page(link) => link.is_away,
            Self::Sitemap(sitemap) => {
                let url = Url::parse(&sitemap.url);
                url.is_ok_and(|url| origin_of(&url) != *sitemap.home)
            }
        }
    }

    /// Returns the metadata of the crawl for the page.
    pub(crate) fn stored(&self) -> Vec<u8> {
        Kind::Named.store(self)
    }

    /// Returns the page in metadata of the crawl, if it is one.
    pub(crate) fn read(metadata: &[u8]) -> Option<Self> {
        Kind::Named.read(metadata).map(|(named, _)| named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_page_is_read_back_and_a_sitemap_is_no_page_of_its_url() {
        let url = Url::parse("http://u:p@a.example/map.xml#x").unwrap();
        let home = Url::parse("http://a.example:80/").unwrap();
        let sitemap = Named::Sitemap(Sitemap::of(&url, &home, 2));
        let page = Named::Page(Link {
            depth: 3,
            prefix: 17,
            is_away: true,
        });
        let (stored, other) = (sitemap.page(&url).unwrap(), page.page(&url).unwrap());
        assert_eq!(Named::read(&stored.metadata), Some(sitemap.clone()));
        assert_eq!(Named::read(&other.metadata), Some(page));
        assert_eq!(stored.key, other.key);
        assert_ne!(stored.url, other.url);
        assert!(!sitemap.is_away());
        for other in [&b""[..], b"http://a/", &[0], &[1]] {
            assert_eq!(Named::read(other), None);
        }
    }
}
