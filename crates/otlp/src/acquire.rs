//! An acquire as its span describes it.

use std::time::Duration;

/// A request for a permit that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The key that was asked.
    pub key: &'a str,
    /// The worker that asked, if there is a coordinator.
    pub worker: Option<&'a str>,
    /// How long the request waited until it ended.
    pub waited: Duration,
    /// Why it waited or was refused.
    pub reason: Option<&'a str>,
    /// How it ended.
    pub result: AcquireResult,
}

/// The end of a request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireResult {
    /// A permit was granted.
    Granted,
    /// The caller may ask again later.
    Wait,
    /// The request was refused.
    Refused,
    /// The request was malformed.
    Error,
}

impl AcquireResult {
    #[cfg(feature = "export")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Wait => "wait",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}
