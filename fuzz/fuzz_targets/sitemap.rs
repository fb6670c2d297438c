//! Reads any bytes as a sitemap or a feed, packed or not. Nothing panics, the bound of addresses
//! holds, and a file that is cut names the first addresses of the whole one.
#![no_main]

#[path = "../../crates/cli/src/fetch/site/sitemap.rs"]
mod sitemap;
#[path = "../../crates/cli/src/fetch/site/text.rs"]
mod text;

use libfuzzer_sys::fuzz_target;

use crate::sitemap::{Address, URLS_MAX, read};

fn addresses(file: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    read(file, &mut |address| {
        let (Address::Page(text) | Address::Sitemap(text)) = address;
        assert!(!text.is_empty());
        found.push(text.to_owned());
    });
    assert!(found.len() <= URLS_MAX);
    found
}

fuzz_target!(|input: (&[u8], u16)| {
    let (file, cut) = input;
    let whole = addresses(file);
    let cut = addresses(&file[..file.len().min(cut.into())]);
    // The last address may be cut too.
    let known = cut.len().saturating_sub(1);
    assert!(whole.len() >= known && cut[..known] == whole[..known]);
});
