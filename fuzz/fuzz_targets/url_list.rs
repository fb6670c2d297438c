//! Reads any bytes as a list of URLs. Every line is empty, a URL with a host, or refused with a
//! message. Nothing panics.
#![no_main]
#![allow(
    dead_code,
    reason = "files of the binary, of which only the parser is called"
)]

#[path = "../../crates/cli/src/exit.rs"]
mod exit;
#[path = "../../crates/cli/src/fetch/input/lines.rs"]
mod input;

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;

use crate::input::{LINE_MAX, Line, Sources, shown};

fuzz_target!(|list: &[u8]| {
    let mut sources = Sources::of_bytes("list", list.to_vec());
    let (mut line, mut places) = (Vec::new(), HashSet::new());
    while let Some(place) = sources.next_line(&mut line).expect("memory can be read") {
        assert!(line.len() <= LINE_MAX + 1);
        assert!(places.insert(place.line) && place.line as usize == places.len());
        match Line::parse(&line) {
            Line::Nothing => {}
            Line::Url(url) => assert!(url.host_str().is_some_and(|host| !host.is_empty())),
            Line::Malformed(why) => assert_eq!(why.lines().count(), 1, "{why:?}"),
        }
        assert!(!shown(&line).contains(char::is_control));
    }
});
