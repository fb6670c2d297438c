//! Any User-Agent value: no panic, and its product token is a part of it and its own product token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::product_token;

fuzz_target!(|value: &str| {
    let token = product_token(value);
    assert!(value.contains(token));
    assert_eq!(product_token(token), token);
});
