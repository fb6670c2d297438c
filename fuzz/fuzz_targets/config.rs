//! Reads any text as politely.toml and as `--site-rps`. It is accepted, or refused with a message
//! of one line. Nothing panics.
#![no_main]
#![allow(
    dead_code,
    reason = "files of the binary, of which only the parsers are called"
)]

#[path = "../../crates/cli/src/config/mod.rs"]
mod config;
#[path = "../../crates/cli/src/exit.rs"]
mod exit;
#[path = "../../crates/cli/src/fetch/input/lines.rs"]
mod input;
#[path = "../../crates/cli/src/site_rps.rs"]
mod site_rps;
#[path = "../../crates/cli/src/units.rs"]
mod units;

mod fetch {
    pub(crate) use crate::input::without_login;
}

use libfuzzer_sys::fuzz_target;

use crate::config::{Settings, parse};
use crate::site_rps::SiteList;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(knobs) => _ = Settings::checked(knobs),
        Err((line, why)) => {
            assert!((1..=text.split('\n').count()).contains(&line), "{line}");
            assert_eq!(why.lines().count(), 1, "{why:?}");
        }
    }
    if let Ok(sites) = text.parse::<SiteList>() {
        for site in sites.0 {
            assert!(site.rps > 0.0 && (1..=8).contains(&site.in_flight()));
            assert!(site.covers(&site.site, Some(&site.site)));
        }
    }
});
