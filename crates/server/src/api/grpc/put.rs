//! `PutURLs` and `PutDiscovered`: streams in both directions.
//!
//! Messages that are here already are stored together. The next ones are read meanwhile, up to a
//! number. They are stored when the answers before them were handed to the connection.

use futures_util::{Stream, StreamExt, stream};
use politely_frontier::{Answer as Stored, CrawlName, NewPage, Revision};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::messages::{Ack, AckStatus, BatchAck, DiscoveredBatch, OfUrl, UrlInfo, UrlItem};
use super::{Answer, Calls, named};
use crate::frontier::{Item, date};

/// The most pages that are stored together.
const BATCH_MAX: usize = 1_000;
/// The most messages of one call that are read before they are stored. A message of the second kind
/// has many pages.
const ITEMS_AHEAD: usize = 1_000;
const BATCHES_AHEAD: usize = 8;
/// The field of the metadata in which `StormCrawler` keeps the status of the response.
const STATUS: &str = "fetch.statusCode";

/// One page of a stream, or the reason why it is not valid.
type Read = Result<(CrawlName, Item), ()>;

pub(super) fn items(
    calls: Calls,
    messages: Streaming<UrlItem>,
) -> impl Stream<Item = Answer<Ack>> + Send {
    let messages = read_ahead(messages, ITEMS_AHEAD);
    let batches = stream::unfold(Some((calls, messages)), |state| async {
        let (calls, mut messages) = state?;
        let (batch, end) = read(&mut messages, |_| 1).await;
        if batch.is_empty() {
            return end.map(|why| (vec![Err(why)], None));
        }
        let ids: Vec<_> = batch.iter().map(id).collect();
        let statuses = calls.store(batch.into_iter().map(item).collect()).await;
        let acks = ids.into_iter().zip(statuses).map(|(id, status)| {
            let status = status as i32;
            Ok(Ack { id, status })
        });
        let mut answers: Vec<_> = acks.collect();
        let is_over = end.is_some();
        answers.extend(end.map(Err));
        Some((answers, (!is_over).then_some((calls, messages))))
    });
    batches.map(stream::iter).flatten()
}

pub(super) fn batches(
    calls: Calls,
    messages: Streaming<DiscoveredBatch>,
) -> impl Stream<Item = Answer<BatchAck>> + Send {
    let messages = read_ahead(messages, BATCHES_AHEAD);
    let batches = stream::unfold(Some((calls, messages)), |state| async {
        let (calls, mut messages) = state?;
        let (batch, end) = read(&mut messages, |batch: &DiscoveredBatch| batch.items.len()).await;
        if batch.is_empty() {
            return end.map(|why| (vec![Err(why)], None));
        }
        let mut answers = Vec::with_capacity(batch.len());
        let sizes: Vec<_> = batch.iter().map(|batch| batch.items.len()).collect();
        let ids: Vec<_> = batch.iter().map(|batch| batch.id.clone()).collect();
        let pages = batch
            .into_iter()
            .flat_map(|batch| batch.items)
            .map(discovered);
        let mut statuses = calls.store(pages.collect()).await.into_iter();
        for (id, size) in ids.into_iter().zip(sizes) {
            let statuses = statuses.by_ref().take(size).map(|status| status as i32);
            answers.push(Ok(BatchAck {
                id,
                statuses: statuses.collect(),
            }));
        }
        let is_over = end.is_some();
        answers.extend(end.map(Err));
        Some((answers, (!is_over).then_some((calls, messages))))
    });
    batches.map(stream::iter).flatten()
}

/// Reads messages in a task of its own until the stream ends or nobody takes them.
fn read_ahead<M: Send + 'static>(
    mut messages: Streaming<M>,
    most: usize,
) -> mpsc::Receiver<Answer<M>> {
    let (sender, receiver) = mpsc::channel(most);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = messages.next() => next,
                () = sender.closed() => None,
            };
            let Some(message) = next else { return };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Takes the next message, and further ones that are here already. Returns the error that ended the
/// stream.
async fn read<M>(
    messages: &mut mpsc::Receiver<Answer<M>>,
    size: impl Fn(&M) -> usize,
) -> (Vec<M>, Option<Status>) {
    let mut batch = Vec::new();
    let mut pages = 0;
    let mut next = messages.recv().await;
    while let Some(message) = next {
        match message {
            Ok(message) => {
                pages += size(&message);
                batch.push(message);
            }
            Err(why) => return (batch, Some(why)),
        }
        if pages >= BATCH_MAX {
            break;
        }
        next = messages.try_recv().ok();
    }
    (batch, None)
}

impl Calls {
    /// Stores pages, and returns one status for each.
    async fn store(&self, pages: Vec<Read>) -> Vec<AckStatus> {
        let mut valid = Vec::with_capacity(pages.len());
        let mut places = Vec::with_capacity(pages.len());
        for page in pages {
            let is_discovered = |(_, item): &(_, Item)| matches!(item, Item::Discovered(_));
            places.push(page.as_ref().map(is_discovered).ok());
            valid.extend(page);
        }
        let (answers, visits) = self.frontier.put_items(valid).await;
        for (worker, told) in visits {
            let (_, aftermath) = self.api.hear(&worker, &[told]).await;
            self.api.coordinator.see_to(aftermath).await;
        }
        let mut answers = answers.into_iter();
        let status = |is_discovered: Option<bool>| {
            let Some(is_discovered) = is_discovered else {
                return AckStatus::Skipped;
            };
            match answers.next().flatten() {
                Some(Stored::Known) if is_discovered => AckStatus::Skipped,
                Some(Stored::New | Stored::Known) => AckStatus::Ok,
                Some(Stored::Invalid(_)) => AckStatus::Skipped,
                Some(Stored::Full) | None => AckStatus::Fail,
            }
        };
        places.into_iter().map(status).collect()
    }
}

fn id(item: &UrlItem) -> String {
    if !item.id.is_empty() {
        return item.id.clone();
    }
    let info = match &item.item {
        Some(OfUrl::Discovered(discovered)) => discovered.info.as_ref(),
        Some(OfUrl::Known(known)) => known.info.as_ref(),
        None => None,
    };
    info.map_or_else(String::new, |info| info.url.clone())
}

fn item(item: UrlItem) -> Read {
    match item.item.ok_or(())? {
        OfUrl::Discovered(found) => discovered(found.info.ok_or(())?),
        OfUrl::Known(known) => {
            let (crawl, page, status) = page(known.info.ok_or(())?)?;
            let again = known.refetchable_from_date;
            let again = (again > 0).then(|| date(again.saturating_mul(1_000)));
            let revision = Revision {
                page,
                status: status.unwrap_or(0),
                again: again.transpose().map_err(drop)?,
            };
            Ok((crawl, Item::Known(revision)))
        }
    }
}

fn discovered(info: UrlInfo) -> Read {
    let (crawl, page, _) = page(info)?;
    Ok((crawl, Item::Discovered(page)))
}

/// Returns the crawl, the page, and the status of its last response.
fn page(info: UrlInfo) -> Result<(CrawlName, NewPage, Option<u16>), ()> {
    let crawl = named(&info.crawl_id).map_err(drop)?;
    let code = info
        .metadata
        .get(STATUS)
        .and_then(|list| list.values.first());
    let status = code.and_then(|code| code.parse().ok());
    let metadata: Map<String, Value> = info
        .metadata
        .into_iter()
        .map(|(name, list)| (name, list.values.into()))
        .collect();
    let metadata = if metadata.is_empty() {
        Vec::new()
    } else {
        Value::Object(metadata).to_string().into_bytes()
    };
    let page = NewPage {
        key: Some(info.key).filter(|key| !key.is_empty()),
        metadata,
        ..NewPage::of_url(info.url)
    };
    Ok((crawl, page, status))
}
