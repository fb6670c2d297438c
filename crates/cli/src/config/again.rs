//! The settings of a run that fetches pages again.

use std::time::Duration;

use super::Knobs;

/// The settings of a run that fetches pages again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgainSettings {
    /// Whether finished pages are fetched again.
    pub(crate) is_on: bool,
    /// Only pages whose last visit is at least this long ago are fetched again.
    pub(crate) since: Option<Duration>,
    /// Whether requests are sent again that may act twice.
    pub(crate) repeats_posts: bool,
}

impl AgainSettings {
    pub(super) fn checked(knobs: &Knobs) -> Result<Self, String> {
        let needs =
            |name: &str, other: &str| Err(format!("--{name} has an effect only with {other}"));
        if knobs.again && knobs.state.is_none() {
            return needs("again", "--state DIR, which knows the pages");
        }
        if knobs.since.is_some() && !knobs.again {
            return needs("since", "--again");
        }
        if knobs.repeat_posts && !knobs.again {
            return needs("repeat-posts", "--again");
        }
        Ok(Self {
            is_on: knobs.again,
            since: knobs.since.map(|age| age.0),
            repeats_posts: knobs.repeat_posts,
        })
    }
}
