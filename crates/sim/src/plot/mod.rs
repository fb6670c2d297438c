//! Pictures of runs, as SVG text: what a person would rather look at than read.
//!
//! ```text
//!   timeline   one run: the limit, what the law aimed for and got, each refusal
//!   field      all laws over a set: how much they use against how often they are refused
//!   study      Brooker's backoff study: calls and time against clients
//! ```
//!
//! Written by hand because a picture here is forty lines of text and has to be the same bytes everywhere.
//! Colours follow the reader's light or dark scheme; lines are named where they end, not in a legend.

mod axis;
mod field;
mod study;
mod svg;
mod timeline;

pub use field::field;
pub use study::study;
pub use timeline::timeline;

#[cfg(test)]
mod tests;
