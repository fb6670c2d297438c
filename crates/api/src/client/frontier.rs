//! The calls of a frontier.

use http::Method;

use super::{Calling, Client, Outgoing, PUT_TIME, escaped, get, query_string};
use crate::wire::{
    FrontierCrawls, FrontierDomains, FrontierDomainsQuery, FrontierOwners, FrontierOwnersQuery,
    FrontierPages, FrontierPagesQuery, PutSummary,
};

impl Client {
    /// Adds pages to a crawl of the frontier: one JSON object per line, a
    /// [`FrontierPage`](crate::wire::FrontierPage).
    pub fn put_pages(&self, crawl: &str, lines: Vec<u8>) -> Calling<PutSummary> {
        self.call(Outgoing {
            method: Method::POST,
            content_type: Some("application/x-ndjson"),
            path: format!("/frontier/{}/put?summary=true", escaped(crawl)),
            body: lines,
            held: PUT_TIME,
        })
    }

    /// Returns the numbers of all crawls of the frontier.
    pub fn crawls(&self) -> Calling<FrontierCrawls> {
        self.call(get("/frontier".to_owned()))
    }

    /// Returns domains of a crawl of the frontier.
    pub fn domains(&self, crawl: &str, query: &FrontierDomainsQuery) -> Calling<FrontierDomains> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/domains?{query}", escaped(crawl))))
    }

    /// Returns owners of domains of a crawl of the frontier.
    pub fn owners(&self, crawl: &str, query: &FrontierOwnersQuery) -> Calling<FrontierOwners> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/owners?{query}", escaped(crawl))))
    }

    /// Returns pages of a domain of a crawl of the frontier.
    pub fn pages(&self, crawl: &str, query: &FrontierPagesQuery) -> Calling<FrontierPages> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/pages?{query}", escaped(crawl))))
    }
}
