//! Chooses the links of a page that are followed.

use politely::core::key::Key;
use url::Url;

use super::links::{PageLinks, canonical_only};
use super::named::Link;
use super::traps::out_of_traps;
use super::urls::is_same_host;
use crate::config::{Follow, Scope};
use crate::fetch::crawl::origin_of;

/// The part of the web that the links of a page may lead to.
///
/// It is that of the page itself: links that keep to it, and their links, cannot leave it. So
/// nothing but the length of a prefix is stored with a page.
pub(super) struct Bounds<'a> {
    scope: Scope,
    /// The page's own URL, and for a page of the input also where its redirects led: people give
    /// `http://example.com`, and the site is at `https://www.example.com`.
    roots: Vec<(&'a Url, u16)>,
    /// The link to each page that is found.
    next: Link,
    origin: String,
}

impl<'a> Bounds<'a> {
    /// Returns the bounds for the links of the page at `url`, which came from `from`. `link` is how
    /// it was found, if the input does not name it. Returns `None` at the greatest depth.
    pub(super) fn of(
        follow: Follow,
        url: &'a Url,
        link: Option<Link>,
        from: &'a Url,
    ) -> Option<Self> {
        let link = link.unwrap_or_default();
        if link.depth >= follow.depth_max {
            return None;
        }
        let roots = match link.depth {
            0 => vec![(url, folder_len(url)), (from, folder_len(from))],
            _ => vec![(url, link.prefix)],
        };
        Some(Self {
            scope: follow.scope,
            roots,
            next: Link {
                depth: link.depth + 1,
                ..link
            },
            origin: origin_of(url),
        })
    }

    /// Returns how a page at `url` is found by a link, or `None` if it is out of bounds.
    fn link(&self, url: &Url) -> Option<Link> {
        let is_in = |(root, prefix): &&(&Url, u16)| match self.scope {
            Scope::Host => is_same_host(root, url),
            Scope::Site => {
                let (of_root, of_url) = (Key::site_of_url(root), Key::site_of_url(url));
                is_same_host(root, url)
                    || matches!((of_root, of_url), (Ok(one), Ok(other)) if one == other)
            }
            Scope::Prefix => {
                let prefix = root.as_str().get(..(*prefix).into());
                prefix.is_some_and(|prefix| url.as_str().starts_with(prefix))
            }
        };
        let (_, prefix) = self.roots.iter().find(is_in)?;
        Some(Link {
            prefix: *prefix,
            is_away: self.next.is_away || origin_of(url) != self.origin,
            ..self.next
        })
    }

    /// Returns the links of a page that are followed.
    pub(super) fn followed(&self, from: &Url, links: PageLinks) -> Vec<(Url, Link)> {
        if links.is_nofollow {
            return Vec::new();
        }
        let within = |url: Url| {
            let url = out_of_traps(url)?;
            let link = self.link(&url)?;
            Some((url, link))
        };
        if let Some(canonical) = canonical_only(from, links.canonical)
            && let Some(followed) = within(canonical)
        {
            return vec![followed];
        }
        links.urls.into_iter().filter_map(within).collect()
    }
}

/// Returns the length of a URL up to the last slash of its path.
fn folder_len(url: &Url) -> u16 {
    let path = &url[..url::Position::AfterPath];
    let folder = path.rfind('/').map_or(path.len(), |slash| slash + 1);
    u16::try_from(folder).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn follow(scope: Scope) -> Follow {
        Follow {
            scope,
            depth_max: 2,
        }
    }

    /// Returns which URLs the links of a page may lead to.
    fn allowed(scope: Scope, page: (&str, &str), link: Option<Link>, urls: &[&str]) -> Vec<bool> {
        let (url, from) = (parse(page.0), parse(page.1));
        let bounds = Bounds::of(follow(scope), &url, link, &from).unwrap();
        urls.iter()
            .map(|url| bounds.link(&parse(url)).is_some())
            .collect()
    }

    #[test]
    fn links_keep_to_the_scope_of_their_page_and_of_where_the_input_led() {
        let urls = [
            "http://a.example.com/docs/x",
            "https://a.example.com/",
            "http://a.example.com:81/docs/x",
            "http://b.example.com/docs/x",
            "http://other.com/docs/x",
        ];
        let page = "http://a.example.com/docs/";
        for (scope, expected) in [
            (Scope::Host, [true, true, false, false, false]),
            (Scope::Site, [true, true, true, true, false]),
            (Scope::Prefix, [true, false, false, false, false]),
        ] {
            assert_eq!(
                allowed(scope, (page, page), None, &urls),
                expected,
                "{scope:?}"
            );
        }
        let led = (page, "http://other.com/docs/start");
        assert!(allowed(Scope::Prefix, led, None, &urls)[4]);
        let found = Link {
            depth: 1,
            ..Link::default()
        };
        assert!(!allowed(Scope::Host, led, Some(found), &urls)[4]);
    }

    #[test]
    fn a_prefix_stays_that_of_the_input_and_the_depth_ends() {
        let (seed, follow) = (
            parse("http://a.example/docs/index.html?q=/x/"),
            follow(Scope::Prefix),
        );
        let first = Bounds::of(follow, &seed, None, &seed).unwrap();
        let child = parse("http://a.example/docs/deep/er.html");
        let link = first.link(&child).unwrap();
        let second = Bounds::of(follow, &child, Some(link), &child).unwrap();
        let sibling = parse("http://a.example/docs/other");
        let last = second.link(&sibling).unwrap();
        assert!(second.link(&parse("http://a.example/")).is_none());
        assert!(Bounds::of(follow, &sibling, Some(last), &sibling).is_none());
        assert!(!last.is_away);
    }

    #[test]
    fn a_page_off_the_origin_of_the_input_stays_off_it() {
        let (seed, follow) = (parse("http://a.example/"), follow(Scope::Host));
        let bounds = Bounds::of(follow, &seed, None, &seed).unwrap();
        let away = parse("https://a.example/x");
        let link = bounds.link(&away).unwrap();
        let bounds = Bounds::of(follow, &away, Some(link), &away).unwrap();
        assert!(link.is_away && bounds.link(&seed).unwrap().is_away);
    }
}
