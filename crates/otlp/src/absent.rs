//! The collector of a build without the feature `export`: no value of its type exists.

use http::HeaderMap;
use metrics::Histogram;

use crate::Acquire;

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The program was built without this feature.
    #[error("this binary has no OpenTelemetry: install the package, or build with --features otlp")]
    Absent,
}

/// A collector, which this build does not have.
#[derive(Clone, Debug)]
pub enum Collector {}

/// The span that caused an acquire. This build reads none.
#[derive(Clone, Debug, Default)]
pub struct Parent(());

impl Parent {
    /// Returns no parent.
    pub const fn of(_headers: &HeaderMap) -> Self {
        Self(())
    }
}

impl Collector {
    /// Refuses.
    ///
    /// # Errors
    /// [`CollectorError::Absent`], always.
    pub fn start(
        _url: &str,
        _tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, CollectorError> {
        Err(CollectorError::Absent)
    }

    /// Sends the span of an acquire.
    pub const fn acquired(&self, _parent: &Parent, _acquire: &Acquire<'_>) {
        match *self {}
    }

    /// Sends counters and gauges.
    pub fn observe(
        &self,
        _families: &[(&'static str, &'static str)],
        _emit: impl Fn() + Send + Sync + 'static,
    ) {
        match *self {}
    }

    /// Returns a histogram whose samples are sent.
    pub const fn histogram(
        &self,
        _name: &'static str,
        _help: &'static str,
        _bounds: &[f64],
    ) -> Histogram {
        match *self {}
    }

    /// Sends what is left.
    pub const fn close(&self) {
        match *self {}
    }
}
