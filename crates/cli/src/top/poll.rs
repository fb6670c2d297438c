//! Polls the coordinator: at once when the wanted data changes, and else once a second.

use std::sync::mpsc::Sender;
use std::time::Duration;

use politely_api::client::Client;
use politely_api::wire::{
    FleetStats, FrontierCounts, FrontierOwner, FrontierOwnersQuery, KeyDetail, KeyPage, KeysQuery,
};
use tokio::sync::watch;

use super::state::Event;
use crate::fault::Fault;

/// The time from an answer to the next call.
const EVERY: Duration = Duration::from_secs(1);
/// The maximum time between two calls to a coordinator that does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// The most owners of domains, more than a screen shows.
const OWNERS_MAX: u32 = 200;

/// The data that the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Part of the table.
    Table(KeysQuery),
    /// One key.
    Key(String),
    /// All crawls, and the owners of domains of one of them, by default the first.
    Crawls(Option<String>),
}

/// An answer of the coordinator.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) wanted: Wanted,
    pub(super) fleet: FleetStats,
    pub(super) shown: Shown,
}

#[derive(Debug)]
pub(super) enum Shown {
    Table(KeyPage),
    /// `None` means that the coordinator does not know the key.
    Key(Option<Box<KeyDetail>>),
    /// `None` means that the coordinator has no frontier.
    Crawls(Option<CrawlsSeen>),
}

/// The crawls of a frontier.
#[derive(Debug, Default)]
pub(super) struct CrawlsSeen {
    pub(super) crawls: Vec<FrontierCounts>,
    /// The owners of domains of the chosen crawl.
    pub(super) owners: Vec<FrontierOwner>,
}

/// Polls until the receiver of the answers is gone.
pub(super) async fn poll(client: Client, mut wanted: watch::Receiver<Wanted>, tell: Sender<Event>) {
    let mut failures = 0;
    loop {
        let asked = wanted.borrow_and_update().clone();
        let seen = tokio::select! {
            seen = look(&client, asked) => seen,
            changed = wanted.changed() => match changed {
                // The screen wants other data by now, so this answer would be out of date.
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        failures = if seen.is_ok() { 0 } else { failures + 1 };
        let event = seen.map_or_else(Event::Unavailable, |seen| Event::Seen(Box::new(seen)));
        if tell.send(event).is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause(failures)) => {}
            changed = wanted.changed(), if failures == 0 => if changed.is_err() { return },
        }
    }
}

async fn look(client: &Client, wanted: Wanted) -> Result<Seen, Fault> {
    let fleet = client.at_each(Client::stats).await?;
    let shown = match &wanted {
        Wanted::Table(query) => Shown::Table(client.at_each(|client| client.keys(query)).await?),
        Wanted::Key(name) => {
            let detail = client.at_each(|client| client.key(name)).await;
            match detail.map_err(Fault::from) {
                Err(Fault::Unknown) => Shown::Key(None),
                detail => Shown::Key(Some(Box::new(detail?))),
            }
        }
        Wanted::Crawls(chosen) => Shown::Crawls(crawls(client, chosen.as_deref()).await?),
    };
    Ok(Seen {
        wanted,
        fleet,
        shown,
    })
}

async fn crawls(client: &Client, chosen: Option<&str>) -> Result<Option<CrawlsSeen>, Fault> {
    let found = client.at_each(Client::crawls).await.map_err(Fault::from);
    let crawls = match found {
        Err(Fault::Unknown) => return Ok(None),
        found => found?.crawls,
    };
    let chosen = chosen.or(crawls.first().map(|crawl| crawl.crawl.as_str()));
    let Some(chosen) = chosen.map(ToOwned::to_owned) else {
        return Ok(Some(CrawlsSeen::default()));
    };
    let query = FrontierOwnersQuery {
        limit: Some(OWNERS_MAX),
    };
    let owners = client.at_each(|client| client.owners(&chosen, &query));
    let owners = match owners.await.map_err(Fault::from) {
        // The crawl was deleted meanwhile.
        Err(Fault::Unknown) => Vec::new(),
        owners => owners?.owners,
    };
    Ok(Some(CrawlsSeen { crawls, owners }))
}

/// Returns the pause before the next call: a second, doubled for each failure in a row.
fn pause(failures: u32) -> Duration {
    let doubled = EVERY.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let seconds = [0, 1, 2, 3, 4, 5, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(seconds, [1, 1, 2, 4, 8, 8, 8]);
    }
}
