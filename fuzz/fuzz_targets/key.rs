//! Reads any text as a host, a site, a custom name and a stored key. Nothing panics, keys have a
//! bounded length, and the text of a key is read as the same key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely_core::key::{Key, KeyKind};
use url::Url;

fuzz_target!(|text: &str| {
    if let Ok(key) = Key::host(text) {
        assert_eq!(Key::host(key.as_str()).as_ref(), Ok(&key));
        assert!(!key.as_str().contains('/'));
    }
    let (egress, host) = text.split_once('\n').unwrap_or(("proxy", text));
    let keys = [
        Key::host(text),
        Key::site(text),
        Key::custom(text),
        Key::parse(text),
        Key::egress_host(egress, host),
    ];
    for key in keys.into_iter().flatten() {
        assert_eq!(Key::parse(key.as_str()).as_ref(), Ok(&key));
        assert!(key.as_str().len() <= 520);
    }
    if let Ok(url) = Url::parse(text) {
        for kind in KeyKind::ALL {
            if let Ok(key) = kind.key(&url, None, Some("proxy")) {
                assert_eq!(Key::parse(key.as_str()), Ok(key));
            }
        }
    }
});
