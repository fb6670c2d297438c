//! The pages that an answer names, on their way into the crawl.

use std::io::{BufReader, Seek as _, SeekFrom};

use politely_frontier::ValidPage;
use url::Url;

use super::named::{Link, Named, Sitemap};
use super::sitemap::{self, Address, End};
use super::urls::{is_same_host, page_url};
use crate::fetch::crawl::origin_of;
use crate::fetch::filter::Filter;
use crate::fetch::transport::content::Content;

/// The most indexes on the way to a sitemap. sitemaps.org allows one, and sites have two.
const NESTING_MAX: u8 = 3;

/// The pages that an answer names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) urls: Vec<Url>,
    pub(crate) pages: Vec<ValidPage>,
    /// The sitemaps among them, which are no pages of the user.
    pub(crate) sitemaps: Vec<(Url, ValidPage)>,
    /// The number of URLs that a pattern left out.
    pub(crate) left_out: u64,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.sitemaps.is_empty() && self.left_out == 0
    }

    /// Returns the pages of the links that are followed.
    pub(super) fn of_links(links: Vec<(Url, Link)>, filter: &Filter) -> Self {
        let mut found = Self::default();
        for (url, link) in links {
            found.add(url, &Named::Page(link), filter);
        }
        found
    }

    fn add(&mut self, url: Url, named: &Named, filter: &Filter) {
        let is_page = matches!(named, Named::Page(_));
        if is_page && !filter.lets(&url) {
            self.left_out += 1;
            return;
        }
        // A URL that the crawl cannot take is too long for any server.
        let Ok(page) = named.page(&url) else { return };
        if is_page {
            self.urls.push(url);
            self.pages.push(page);
        } else {
            self.sitemaps.push((url, page));
        }
    }
}

/// The pages of a sitemap, and what is wrong with it.
pub(super) struct OfSitemap {
    pub(super) found: Found,
    pub(super) warnings: Vec<String>,
    /// Why it names nothing, if it cannot be read.
    pub(super) error: Option<String>,
}

/// Reads a sitemap that came from `from`.
///
/// As sitemaps.org has it, a sitemap is for the pages of its own host, and of the host whose
/// robots.txt names it. Its folder does not matter: search engines ignore that rule for sitemaps
/// that were submitted, and many sites break it.
pub(super) fn of_sitemap(
    mut content: Content,
    sitemap: &Sitemap,
    from: &Url,
    filter: &Filter,
) -> OfSitemap {
    let hosts = [
        Some(from.clone()),
        Url::parse(&sitemap.url).ok(),
        Url::parse(&sitemap.home).ok(),
    ];
    let is_ours = |url: &Url| hosts.iter().flatten().any(|host| is_same_host(host, url));
    let (mut found, mut count, mut wrong, mut foreign, mut deep) =
        (Found::default(), 0_u64, 0_u64, 0_u64, 0_u64);
    let mut take = |address: Address<'_>| {
        count += 1;
        let (Address::Page(text) | Address::Sitemap(text)) = address;
        let Some(url) = page_url(from, text) else {
            wrong += 1;
            return;
        };
        if !is_ours(&url) {
            foreign += 1;
            return;
        }
        let is_away = origin_of(&url) != *sitemap.home;
        let named = match address {
            Address::Page(_) => Named::Page(Link {
                is_away,
                ..Link::default()
            }),
            Address::Sitemap(_) if sitemap.nesting >= NESTING_MAX => {
                deep += 1;
                return;
            }
            Address::Sitemap(_) => Named::Sitemap(Sitemap {
                url: url.as_str().into(),
                nesting: sitemap.nesting + 1,
                home: sitemap.home.clone(),
            }),
        };
        found.add(url, &named, filter);
    };
    let end = match content.seek(SeekFrom::Start(0)) {
        Err(why) => End::Damaged(why.to_string()),
        Ok(_) => sitemap::read(BufReader::new(content), &mut take),
    };
    let mut warnings = Vec::new();
    let mut warn = |count: u64, what: &str| {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    };
    warn(foreign, "URLs of other hosts are left out");
    warn(wrong, "addresses are not URLs");
    warn(deep, "sitemaps below four indexes are left out");
    let mut error = None;
    match end {
        End::Whole => {}
        End::TooLong(bound) => warnings.push(format!("only its first {bound} are read")),
        End::Damaged(why) if count > 0 => {
            warnings.push(format!("it is damaged, and its rest is not read: {why}"));
        }
        End::Damaged(why) => error = Some(format!("damaged sitemap: {why}")),
        End::Other(why) => error = Some(format!("not a sitemap: {why}")),
    }
    OfSitemap {
        found,
        warnings,
        error,
    }
}
