//! Whole sites: the pages that sitemaps, feeds and links name.
//!
//! A page is found in the answer to another one, and goes into the same crawl as those of the
//! input. It is there before the other page counts as done, so a kill between both loses nothing:
//! the other page is fetched again, and its pages are known.

pub(super) mod found;
mod links;
pub(super) mod named;
mod scope;
mod sitemap;
mod text;
mod traps;
mod urls;

use std::io::{Seek as _, SeekFrom};

use url::Url;

use super::engine::Engine;
use super::input::lines::{Line, without_login};
use super::lanes::pending::{Pending, Purpose};
use super::transport::answer::{Answer, Came};
use super::transport::content::Content;
use crate::exit::Wrong;
use found::{Found, OfSitemap};
use named::{Named, Sitemap};
use scope::Bounds;
use urls::page_url;

/// The size up to which a sitemap is read, decoded.
pub(super) const SITEMAP_MAX: u64 = sitemap::BYTES_MAX;

/// Returns the sitemaps of the settings.
pub(super) fn given(sitemaps: &[String]) -> Result<Vec<Url>, Wrong> {
    let url = |text: &String| match Line::parse(text.as_bytes()) {
        Line::Url(url) => Ok(url),
        Line::Nothing => Err(Wrong("--sitemap: empty; give a URL".to_owned())),
        Line::Malformed(why) => Err(Wrong(format!("--sitemap {}: {why}", without_login(text)))),
    };
    sitemaps.iter().map(url).collect()
}

/// Returns a sitemap of the settings, or of a robots.txt of `home`.
pub(super) fn sitemap(url: Url, home: &Url) -> Result<Found, String> {
    let page = Named::Sitemap(Sitemap::of(&url, home, 0)).page(&url)?;
    Ok(Found {
        sitemaps: vec![(url, page)],
        ..Found::default()
    })
}

/// Returns the sitemaps that the robots.txt of `home` names, which came from `from`.
pub(super) fn of_robots(body: &[u8], from: &Url, home: &Url) -> Found {
    let mut all = Found::default();
    let addresses = politely::robots::sitemaps(body);
    for url in addresses.iter().filter_map(|text| page_url(from, text)) {
        if let Ok(found) = sitemap(url, home) {
            all.sitemaps.extend(found.sitemaps);
        }
    }
    all
}

/// Returns whether the links of `pending` are followed, if its answer has any.
pub(super) fn follows(engine: &Engine, pending: &Pending) -> bool {
    let depth = pending.page.link().map_or(0, |link| link.depth);
    let follow = engine.settings.site.follow;
    pending.purpose == Purpose::Page && follow.is_some_and(|follow| depth < follow.depth_max)
}

/// Reads the pages that an answer from `from` names into `pending`. Returns why the answer cannot
/// be used, if so.
pub(super) fn read(
    engine: &Engine,
    pending: &mut Pending,
    from: &Url,
    came: &Came,
    content: Option<Content>,
) -> Option<String> {
    pending.found = None;
    let (Some(content), Came::Answer(answer)) = (content, came) else {
        return None;
    };
    let read = || match pending.page.sitemap() {
        Some(sitemap) => of_sitemap(engine, sitemap, from, content),
        None => (of_page(engine, pending, from, answer, content), None),
    };
    let (found, error) = if answer.bytes > READ_AT_ONCE_MAX {
        tokio::task::block_in_place(read)
    } else {
        read()
    };
    if !found.is_empty() {
        pending.found = Some(Box::new(found));
    }
    error
}

/// The bytes of a body that are read without a thread of their own.
pub(super) const READ_AT_ONCE_MAX: u64 = 64 * 1024;

fn of_sitemap(
    engine: &Engine,
    sitemap: &Sitemap,
    from: &Url,
    content: Content,
) -> (Found, Option<String>) {
    let OfSitemap {
        found,
        warnings,
        error,
    } = found::of_sitemap(content, sitemap, from, &engine.filter);
    for warning in warnings {
        let url = without_login(&sitemap.url);
        engine
            .talk
            .say(&format!("warning: sitemap {url}: {warning}"));
    }
    (found, error)
}

fn of_page(
    engine: &Engine,
    pending: &Pending,
    from: &Url,
    answer: &Answer,
    mut content: Content,
) -> Found {
    let token = &engine.settings.robots_token;
    let own = pending.page.address();
    let bounds = engine.settings.site.follow.zip(own.as_ref());
    let bounds =
        bounds.and_then(|(follow, own)| Bounds::of(follow, own, pending.page.link(), from));
    let Some(bounds) = bounds else {
        return Found::default();
    };
    let mut tags = answer.headers.get_all("x-robots-tag").iter();
    if tags.any(|tag| links::header_forbids(&String::from_utf8_lossy(tag.as_bytes()), token)) {
        return Found::default();
    }
    let begun = content.seek(SeekFrom::Start(0));
    match begun.and_then(|_| links::read(content, from, token)) {
        Ok(links) => Found::of_links(bounds.followed(from, links), &engine.filter),
        Err(why) => {
            let url = without_login(from.as_str());
            engine.talk.say(&format!(
                "warning: the links of {url} cannot be read: {why}"
            ));
            Found::default()
        }
    }
}
