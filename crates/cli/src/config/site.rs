//! The settings for whole sites.

use clap::ValueEnum;
use serde::Deserialize;

use super::{Knobs, Profile};

/// The default of `depth`. Trees of pages are less deep, and it ends calendars.
const DEPTH_DEFAULT: u32 = 16;
/// The default of `pages-per-host`. It ends what is wide without end.
const PAGES_PER_HOST_DEFAULT: u32 = 1_000_000;

/// The links that are followed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// those to the same host and port
    Host,
    /// those to the same registrable domain
    Site,
    /// those below the folder of the URL
    Prefix,
}

/// The bounds of links that are followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follow {
    pub(crate) scope: Scope,
    /// The most links from a page of the input to a page.
    pub(crate) depth_max: u16,
}

/// The sources of pages beside the input.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteSettings {
    /// The addresses of sitemaps.
    pub(crate) sitemaps: Vec<String>,
    /// Whether the sitemaps are read that the robots.txt of each host names.
    pub(crate) reads_robots: bool,
    pub(crate) follow: Option<Follow>,
    /// The number of pages of a host from which on no further ones are found.
    pub(crate) pages_per_host_max: u32,
}

impl SiteSettings {
    /// Returns whether answers name further pages.
    pub(crate) fn finds_pages(&self) -> bool {
        self.reads_robots || !self.sitemaps.is_empty() || self.follow.is_some()
    }

    pub(super) fn checked(knobs: &mut Knobs) -> Result<Self, String> {
        let depth = knobs.depth.unwrap_or(DEPTH_DEFAULT);
        super::within("depth", Some(f64::from(depth)), 1.0, 1e4)?;
        let pages = knobs.pages_per_host;
        super::within("pages-per-host", pages.map(f64::from), 1.0, 4e9)?;
        Ok(Self {
            sitemaps: std::mem::take(&mut knobs.sitemap),
            reads_robots: knobs.sitemaps,
            follow: knobs.follow.map(|scope| Follow {
                scope,
                depth_max: depth as u16,
            }),
            pages_per_host_max: pages.unwrap_or(PAGES_PER_HOST_DEFAULT),
        })
    }
}

impl Knobs {
    /// Refuses settings for whole sites that have no effect beside the others.
    pub(super) fn site_in_force(&self) -> Result<(), String> {
        let first = |of: &[(&'static str, bool)]| {
            let mut of = of.iter();
            of.find(|(_, given)| *given).map(|(name, _)| *name)
        };
        if self.follow.is_none() && self.depth.is_some() {
            return Err("--depth has an effect only with --follow".to_owned());
        }
        let of_site = [
            ("follow", self.follow.is_some()),
            ("sitemap", !self.sitemap.is_empty()),
            ("sitemaps", self.sitemaps),
        ];
        if first(&of_site).is_none() && self.pages_per_host.is_some() {
            return Err(
                "--pages-per-host has an effect only with --follow, --sitemap or --sitemaps"
                    .to_owned(),
            );
        }
        if let Some(name) = first(&of_site) {
            let of_input = [
                ("method", self.method.is_some()),
                ("data", self.data.is_some()),
                ("data-file", self.data_file.is_some()),
            ];
            if let Some(other) = first(&of_input) {
                return Err(format!(
                    "--{name} cannot be combined with --{other}: the pages that it finds are requested with GET"
                ));
            }
        }
        if self.sitemaps && (self.no_robots || self.profile == Some(Profile::Api)) {
            return Err(
                "--sitemaps reads robots.txt; leave out --no-robots and --profile api, or give --sitemap URL"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
