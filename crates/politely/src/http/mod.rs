//! Requests over HTTP: what an attempt does, and the entry points that send requests.
//!
//! | module | the question that it answers |
//! | --- | --- |
//! | `attempts` | When is a request sent, what does its response mean, and is it sent again? |
//! | `redirect` | Which request follows a redirect? |
//! | `coding` | How is a body decoded? |
//! | `layer` | How does a tower service send paced requests? |
//! | `middleware` | How does a reqwest client send paced requests? |

#[cfg(any(feature = "tower", feature = "reqwest"))]
pub mod attempts;
#[cfg(feature = "coding")]
pub mod coding;
#[cfg(feature = "tower")]
pub mod layer;
#[cfg(feature = "reqwest")]
pub mod middleware;
#[cfg(feature = "url")]
pub mod redirect;
