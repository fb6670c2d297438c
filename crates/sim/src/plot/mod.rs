//! Plots of runs as SVG text.
//!
//! ```text
//!   timeline   one run: the limit, the setpoint, accepted requests, each refusal
//!   field      all laws over a set: how much they use against how often they are refused
//!   study      Brooker's backoff study: calls and time against clients
//! ```
//!
//! The SVG is written by hand: a plot here is forty lines of text and must have the same bytes on
//! every machine. Colours follow the reader's light or dark scheme. Lines are named where they end
//! instead of in a legend.

mod axis;
mod field;
#[cfg(feature = "rivals")]
mod study;
mod svg;
mod timeline;

pub use field::field;
#[cfg(feature = "rivals")]
pub use study::study;
pub use timeline::timeline;

#[cfg(all(test, feature = "rivals"))]
mod tests;
