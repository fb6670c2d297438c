//! The calls of a frontier.

use std::future::Future;

use http::Method;

use super::{CallError, Client, Outgoing, PUT_TIME, escaped, get, query_string};
use crate::wire::{
    FrontierCrawls, FrontierDomains, FrontierDomainsQuery, FrontierOwners, FrontierOwnersQuery,
    FrontierPages, FrontierPagesQuery, PutSummary,
};

impl Client {
    /// Adds pages to a crawl of the frontier: one JSON object per line, a
    /// [`FrontierPage`](crate::wire::FrontierPage).
    pub fn put_pages(
        &self,
        crawl: &str,
        lines: Vec<u8>,
    ) -> impl Future<Output = Result<PutSummary, CallError>> + Send + use<> {
        self.call(Outgoing {
            method: Method::POST,
            content_type: Some("application/x-ndjson"),
            path: format!("/frontier/{}/put?summary=true", escaped(crawl)),
            body: lines,
            held: PUT_TIME,
        })
    }

    /// Returns the numbers of all crawls of the frontier.
    pub fn crawls(&self) -> impl Future<Output = Result<FrontierCrawls, CallError>> + Send + use<> {
        self.call(get("/frontier".to_owned()))
    }

    /// Returns domains of a crawl of the frontier.
    pub fn domains(
        &self,
        crawl: &str,
        query: &FrontierDomainsQuery,
    ) -> impl Future<Output = Result<FrontierDomains, CallError>> + Send + use<> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/domains?{query}", escaped(crawl))))
    }

    /// Returns owners of domains of a crawl of the frontier.
    pub fn owners(
        &self,
        crawl: &str,
        query: &FrontierOwnersQuery,
    ) -> impl Future<Output = Result<FrontierOwners, CallError>> + Send + use<> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/owners?{query}", escaped(crawl))))
    }

    /// Returns pages of a domain of a crawl of the frontier.
    pub fn pages(
        &self,
        crawl: &str,
        query: &FrontierPagesQuery,
    ) -> impl Future<Output = Result<FrontierPages, CallError>> + Send + use<> {
        let query = query_string(query);
        self.call(get(format!("/frontier/{}/pages?{query}", escaped(crawl))))
    }
}
