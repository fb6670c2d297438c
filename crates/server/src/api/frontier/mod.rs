//! The HTTP calls of the frontier.
//!
//! | file | its part |
//! | --- | --- |
//! | `put.rs` | a stream of pages, one JSON object per line |
//! | `units.rs` | take, done, exchange |
//! | `orders.rs` | purge, delete, block, delay, pause |
//! | `look.rs` | counts, domains, pages |

mod look;
mod orders;
mod put;
mod units;

use axum::http::StatusCode;
use politely_frontier::{CrawlName, FrontierError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Wrong;
use crate::frontier::{FrontierService, crawl_name};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(put::put))
        .routes(routes!(units::take))
        .routes(routes!(units::done))
        .routes(routes!(units::exchange))
        .routes(routes!(orders::purge))
        .routes(routes!(orders::delete))
        .routes(routes!(orders::block))
        .routes(routes!(orders::delay))
        .routes(routes!(orders::pause))
        .routes(routes!(look::crawls))
        .routes(routes!(look::crawl))
        .routes(routes!(look::domains))
        .routes(routes!(look::owners))
        .routes(routes!(look::pages))
        .routes(routes!(look::url))
}

impl Api {
    fn frontier(&self) -> Result<&FrontierService, Wrong> {
        let detail = "this coordinator has no frontier; start it with --frontier DIR";
        let missing = || Wrong::new(StatusCode::NOT_FOUND, detail);
        self.frontier.as_ref().ok_or_else(missing)
    }
}

/// Returns the crawl that a path names.
fn named(text: &str) -> Result<CrawlName, Wrong> {
    let wrong = |why| Wrong::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    crawl_name(text).map_err(|why| wrong(why).field("crawl"))
}

impl From<FrontierError> for Wrong {
    fn from(error: FrontierError) -> Self {
        let detail = error.to_string();
        let (status, field) = match &error {
            FrontierError::UnknownCrawl(_) => (StatusCode::NOT_FOUND, "crawl"),
            FrontierError::UnknownDomain(..) => (StatusCode::NOT_FOUND, "domain"),
            FrontierError::Stale(_) => (StatusCode::CONFLICT, "token"),
            FrontierError::TooManyPages(..) => (StatusCode::PAYLOAD_TOO_LARGE, "pages"),
            FrontierError::NotInUnit(..) => (StatusCode::UNPROCESSABLE_ENTITY, "pages"),
            FrontierError::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "url"),
            FrontierError::TooManyCrawls(..) | FrontierError::TooManyUnits(_) => {
                return Self::capped(detail);
            }
            FrontierError::NotShared(_) => return Self::new(StatusCode::NOT_IMPLEMENTED, detail),
            FrontierError::Store(_) | FrontierError::Unavailable(_) | FrontierError::Closed(_) => {
                return Self::busy(&detail);
            }
        };
        Self::new(status, detail).field(field)
    }
}
