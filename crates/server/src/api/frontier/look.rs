//! Calls that only read: counts, domains, pages.

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{
    FrontierCounts, FrontierCrawls, FrontierDomains, FrontierDomainsQuery, FrontierOwners,
    FrontierOwnersQuery, FrontierPages, FrontierPagesQuery, FrontierUrl, FrontierUrlQuery, Problem,
};

use super::named;
use crate::api::Api;
use crate::api::body::{Json, Params, Part, TwoParts};
use crate::api::problem::Wrong;

/// The most domains in one answer.
const DOMAINS_MAX: u32 = 1_000;
/// The number of domains in an answer by default.
const DOMAINS: u32 = 100;

/// Returns the numbers of all crawls.
#[utoipa::path(get, path = "/api/v1/frontier", responses(
    (status = 200, body = FrontierCrawls),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn crawls(State(api): State<Api>) -> Result<Json<FrontierCrawls>, Wrong> {
    Ok(Json(api.frontier()?.crawls().await?))
}

/// Returns the numbers of a crawl.
#[utoipa::path(get, path = "/api/v1/frontier/{crawl}", params(("crawl" = String, Path)), responses(
    (status = 200, body = FrontierCounts),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn crawl(
    State(api): State<Api>,
    Part(crawl): Part,
) -> Result<Json<FrontierCounts>, Wrong> {
    Ok(Json(api.frontier()?.counts(&named(&crawl)?).await?))
}

/// Lists the domains of a crawl, by name.
#[utoipa::path(get, path = "/api/v1/frontier/{crawl}/domains", params(("crawl" = String, Path), FrontierDomainsQuery), responses(
    (status = 200, body = FrontierDomains), Wrong,
))]
pub(super) async fn domains(
    State(api): State<Api>,
    Part(crawl): Part,
    Params(query): Params<FrontierDomainsQuery>,
) -> Result<Json<FrontierDomains>, Wrong> {
    let most = query.limit.unwrap_or(DOMAINS).min(DOMAINS_MAX) as usize;
    let after = query.after.unwrap_or_default();
    let domains = api.frontier()?.domains(named(&crawl)?, after, most).await?;
    Ok(Json(FrontierDomains { domains }))
}

/// Lists the owners of domains of a crawl, the oldest unit first.
#[utoipa::path(get, path = "/api/v1/frontier/{crawl}/owners", params(("crawl" = String, Path), FrontierOwnersQuery), responses(
    (status = 200, body = FrontierOwners), Wrong,
))]
pub(super) async fn owners(
    State(api): State<Api>,
    Part(crawl): Part,
    Params(query): Params<FrontierOwnersQuery>,
) -> Result<Json<FrontierOwners>, Wrong> {
    let most = query.limit.unwrap_or(DOMAINS).min(DOMAINS_MAX) as usize;
    let owners = api.frontier()?.owners(named(&crawl)?, most).await?;
    Ok(Json(FrontierOwners { owners }))
}

/// Lists the pages of a domain, visited or not.
#[utoipa::path(get, path = "/api/v1/frontier/{crawl}/pages", params(("crawl" = String, Path), FrontierPagesQuery), responses(
    (status = 200, body = FrontierPages), Wrong,
))]
pub(super) async fn pages(
    State(api): State<Api>,
    Part(crawl): Part,
    Params(query): Params<FrontierPagesQuery>,
) -> Result<Json<FrontierPages>, Wrong> {
    let most = query.limit.unwrap_or(DOMAINS).min(DOMAINS_MAX) as usize;
    let wrong = |_| Wrong::new(StatusCode::BAD_REQUEST, "send the `next` of an answer");
    let after = query.after.map(|after| u64::from_str_radix(&after, 16));
    let after = after.transpose().map_err(|why| wrong(why).field("after"))?;
    let frontier = api.frontier()?;
    let pages = frontier.pages(named(&crawl)?, query.domain, after, most);
    let (pages, next) = pages.await?;
    let next = next.map(|hash| format!("{hash:016x}"));
    Ok(Json(FrontierPages { pages, next }))
}

/// Returns what is known about a page. The URL is sent percent-encoded.
#[utoipa::path(get, path = "/api/v1/frontier/{crawl}/urls/{url}", params(("crawl" = String, Path), ("url" = String, Path, description = "percent-encoded: `https%3A%2F%2Fexample.com%2F`"), FrontierUrlQuery), responses(
    (status = 200, body = FrontierUrl), Wrong,
))]
pub(super) async fn url(
    State(api): State<Api>,
    TwoParts(crawl, url): TwoParts,
    Params(query): Params<FrontierUrlQuery>,
) -> Result<Json<FrontierUrl>, Wrong> {
    let shown: String = url.chars().take(200).collect();
    let page = api.frontier()?.page(named(&crawl)?, url, query.key).await?;
    let unknown = || {
        let detail = format!("the crawl \"{crawl}\" does not know the page \"{shown}\"");
        Wrong::new(StatusCode::NOT_FOUND, detail).field("url")
    };
    page.map(Json).ok_or_else(unknown)
}
