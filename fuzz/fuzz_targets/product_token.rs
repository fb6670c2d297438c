//! Parses any User-Agent value. Nothing panics, and the product token is a part of the value and
//! its own product token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::product_token;

fuzz_target!(|value: &str| {
    let token = product_token(value);
    assert!(value.contains(token));
    assert_eq!(product_token(token), token);
});
