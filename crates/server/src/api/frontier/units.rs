//! The calls of workers about units of work.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{
    DoneAnswer, DoneUnit, FrontierDone, FrontierDoneAnswer, FrontierExchange, FrontierExchanged,
    FrontierTake, FrontierTaken, FrontierUnit, ITEMS_MAX, Told, WAIT_MAX_MS,
};
use politely_frontier::CrawlName;

use super::named;
use crate::api::Api;
use crate::api::access::Caller;
use crate::api::body::{Json, Part};
use crate::api::calls::{error, mark, sound};
use crate::api::problem::Wrong;
use crate::coordinator::{check_labels, ms_up};
use crate::frontier::{Wish, Words};

/// The most units in one call.
const UNITS_MAX: usize = 100;
/// The most pages in one unit.
const PAGES_MAX: u16 = 1_000;

/// The units of a call, and the time after which to ask again, in milliseconds.
type Units = (Vec<FrontierUnit>, Option<u64>);

/// Takes units of work: domains with some of their pages, and the permits to request them.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/take", request_body = FrontierTake, params(("crawl" = String, Path)), responses(
    (status = 200, body = FrontierTaken), Wrong,
))]
pub(super) async fn take(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(call): Json<FrontierTake>,
) -> Result<Json<FrontierTaken>, Wrong> {
    check(&call)?;
    let (units, retry_in_ms) = api.take(&caller, named(&crawl)?, &call).await?;
    Ok(Json(FrontierTaken { units, retry_in_ms }))
}

/// Reports what happened to pages of units, and gives the units back or keeps them.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/done", request_body = FrontierDone, params(("crawl" = String, Path)), responses(
    (status = 200, body = FrontierDoneAnswer), Wrong,
))]
pub(super) async fn done(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(call): Json<FrontierDone>,
) -> Result<Json<FrontierDoneAnswer>, Wrong> {
    sound(&call.client, "units", call.units.len(), 1)?;
    check_done("units", &call.units)?;
    let crawl = named(&crawl)?;
    let units = api.done(&caller, &call.client, crawl, call.units).await?;
    Ok(Json(FrontierDoneAnswer { units }))
}

/// Gives units back and takes the next ones, in one round trip.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/exchange", request_body = FrontierExchange, params(("crawl" = String, Path)), responses(
    (status = 200, body = FrontierExchanged), Wrong,
))]
pub(super) async fn exchange(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(call): Json<FrontierExchange>,
) -> Result<Json<FrontierExchanged>, Wrong> {
    let take = FrontierTake {
        client: call.client,
        units: call.units,
        pages_per_unit: call.pages_per_unit,
        wait_ms: call.wait_ms,
        lease_ms: call.lease_ms,
        labels: call.labels,
    };
    check(&take)?;
    check_done("done", &call.done)?;
    let crawl = named(&crawl)?;
    let done = api
        .done(&caller, &take.client, crawl.clone(), call.done)
        .await?;
    // The answer is not an error after this line: the words were accepted and must not be repeated.
    let taken = api.take(&caller, crawl, &take).await;
    let (units, retry_in_ms) = match taken {
        Err(_) if !done.is_empty() => (Vec::new(), Some(1_000)),
        taken => taken?,
    };
    let exchanged = FrontierExchanged {
        done,
        units,
        retry_in_ms,
    };
    Ok(Json(exchanged))
}

impl Api {
    async fn take(
        &self,
        caller: &Caller,
        crawl: CrawlName,
        call: &FrontierTake,
    ) -> Result<Units, Wrong> {
        let frontier = self.frontier()?;
        let client = caller.worker(&call.client);
        let _place = match call.wait_ms {
            0 => None,
            _ => Some(self.waiting.take(caller, &client, 1)?),
        };
        if let Some(why) = self.coordinator.no_permits() {
            return Err(Wrong::busy(&why));
        }
        let worker = self.coordinator.worker(&client);
        let wish = Wish {
            crawl: Some(crawl),
            domain: None,
            worker,
            units: call.units,
            pages_per_unit: call.pages_per_unit,
            wait: Duration::from_millis(call.wait_ms.min(WAIT_MAX_MS).into()),
            lease: Duration::from_millis(call.lease_ms.into()),
            labels: call.labels.clone(),
            by_page: false,
        };
        let (units, wake) = frontier.take(wish).await?.into_units();
        Ok((units, wake.map(ms_up)))
    }

    /// Reports the outcomes to the keys, and gives the answers and the words to the frontier. The
    /// keys learn from the reports of a stale owner too, because its requests were sent.
    async fn done(
        &self,
        caller: &Caller,
        client: &str,
        crawl: CrawlName,
        units: Vec<DoneUnit>,
    ) -> Result<Vec<DoneAnswer>, Wrong> {
        let frontier = self.frontier()?;
        if let Some(why) = frontier.last_error() {
            return Err(Wrong::busy(&why));
        }
        let client = caller.worker(client);
        let told: Vec<Told> = units
            .iter()
            .flat_map(|unit| &unit.pages)
            .filter_map(told)
            .collect();
        let (mut reports, aftermath) = self.hear(&client, &told).await;
        let not_durable = self.coordinator.see_to(aftermath).await;
        mark(&mut reports, &not_durable);
        let mut reports = reports.into_iter();
        let words = units.into_iter().map(|unit| {
            let count = unit
                .pages
                .iter()
                .filter(|page| page.report.is_some())
                .count();
            let reports = reports.by_ref().take(count).collect();
            Words { unit, reports }
        });
        let words = words.collect();
        let worker = self.coordinator.worker(&client);
        Ok(frontier.done(crawl, worker, words).await?)
    }
}

/// Returns the report of a page, with the page's URL as its resource.
fn told(page: &politely_api::wire::DonePage) -> Option<Told> {
    let mut told = page.report.clone()?;
    told.resource.get_or_insert_with(|| page.url.clone());
    Some(told)
}

fn check(take: &FrontierTake) -> Result<(), Wrong> {
    sound(&take.client, "units", usize::from(take.units), 1)?;
    if usize::from(take.units) > UNITS_MAX {
        return Err(error("units", "must be from 1 to 100").into());
    }
    if !(1..=PAGES_MAX).contains(&take.pages_per_unit) {
        return Err(error("pages_per_unit", "must be from 1 to 1,000").into());
    }
    check_labels(&take.labels)?;
    Ok(())
}

fn check_done(field: &str, units: &[DoneUnit]) -> Result<(), Wrong> {
    let too_many = |detail: String| Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, detail).field(field);
    if units.len() > UNITS_MAX {
        let detail = format!("at most {UNITS_MAX} units, not {}", units.len());
        return Err(too_many(detail));
    }
    let pages: usize = units.iter().map(|unit| unit.pages.len()).sum();
    if pages > ITEMS_MAX {
        return Err(too_many(format!("at most {ITEMS_MAX} pages, not {pages}")));
    }
    Ok(())
}
