//! Reads any bytes as a page of HTML. Nothing panics, each link is a URL of http or https without a
//! fragment and comes once, and a link that is out of traps stays as it is.
#![no_main]

#[path = "../../crates/cli/src/fetch/site/links.rs"]
mod links;
#[path = "../../crates/cli/src/fetch/site/text.rs"]
mod text;
#[path = "../../crates/cli/src/fetch/site/traps.rs"]
mod traps;
#[path = "../../crates/cli/src/fetch/site/urls.rs"]
mod urls;

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use url::Url;

use crate::links::{LINKS_MAX, canonical_only, header_forbids, read};
use crate::traps::out_of_traps;
use crate::urls::is_same_host;

fuzz_target!(|page: &[u8]| {
    let url = Url::parse("http://a.example/folder/page?query").expect("a URL");
    let found = read(page, &url, "politely").expect("memory can be read");
    assert!(found.urls.len() <= LINKS_MAX);
    let mut known = HashSet::new();
    for link in &found.urls {
        assert!(matches!(link.scheme(), "http" | "https") && link.fragment().is_none());
        assert!(known.insert(link) && is_same_host(link, link));
        if let Some(once) = out_of_traps(link.clone()) {
            assert_eq!(out_of_traps(once.clone()), Some(once));
        }
    }
    if let Some(canonical) = canonical_only(&url, found.canonical) {
        assert_ne!(canonical, url);
    }
    header_forbids(&String::from_utf8_lossy(page), "politely");
});
