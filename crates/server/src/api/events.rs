//! The stream of events: holds, rates, breakers, quarantines, locks, and settings of operators.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Sse;
use axum::response::sse::{self, KeepAlive};
use futures_util::Stream;
use futures_util::stream::unfold;
use politely::core::key::Key;
use politely_api::wire::{Event, EventKind, EventsQuery, Problem};

use super::Api;
use super::body::Params;
use super::problem::Wrong;
use crate::watch::{Next, NotKept};

/// The header in which a reader sends the id of the last event that it read.
const LAST: &str = "last-event-id";

/// Streams server-sent events: `event:` is the kind, `data:` is an [`Event`] as JSON.
///
/// A reader that sends the `id:` of the last event that it read, as `Last-Event-ID`, gets the
/// events after it.
#[utoipa::path(get, path = "/api/v1/events", params(EventsQuery), responses(
    (status = 200, body = Event, content_type = "text/event-stream"),
    (status = 410, body = Problem, content_type = "application/problem+json", description = "the events after that id are not kept"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Wrong> {
    let filter = Filter::of(&query)?;
    let log = api.coordinator.watch().events();
    let sent = headers.get(LAST).map(|id| id.to_str().unwrap_or_default());
    let cursor = match sent.or(query.last_event_id.as_deref()) {
        None => log.from_now(),
        Some(id) => log.after(id).map_err(|why| not_kept(id, why))?,
    };
    let closing = api.coordinator.closing();
    let start = (cursor, closing, api.replaced.clone(), filter);
    let stream = unfold(
        start,
        |(mut cursor, mut closing, mut replaced, filter)| async move {
            loop {
                let next = tokio::select! {
                    next = cursor.next() => next?,
                    _ = closing.wait_for(|closed| *closed) => return None,
                    // The tokens were replaced: the stream ends, and the reader reconnects with a
                    // valid token.
                    Ok(()) = replaced.changed() => return None,
                };
                let event = match next {
                    Next::Event(_, event) if !filter.passes(&event) => continue,
                    Next::Event(id, event) => told(&event).id(id),
                    Next::Missed(count) => told(&Event {
                        kind: EventKind::Missed,
                        key: None,
                        text: format!("{count} events were dropped"),
                        rate: None,
                        hold_ms: None,
                    }),
                };
                return Some((Ok(event), (cursor, closing, replaced, filter)));
            }
        },
    );
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))))
}

/// The events that a reader wants. An absent part wants all.
struct Filter {
    key: Option<String>,
    prefix: Option<String>,
    kinds: Option<Vec<EventKind>>,
}

impl Filter {
    fn of(query: &EventsQuery) -> Result<Self, Wrong> {
        let parse = |kind: &str| {
            serde_json::from_value(serde_json::Value::from(kind)).map_err(|_| {
                let detail = format!("{kind:?} is no kind of event; see /api/v1/openapi.json");
                Wrong::new(StatusCode::BAD_REQUEST, detail).field("kind")
            })
        };
        let kinds = query.kind.as_deref();
        let kinds = kinds.map(|kinds| kinds.split(',').map(parse).collect());
        Ok(Self {
            key: query.key.as_deref().map(Key::canonical),
            prefix: query.prefix.as_deref().map(Key::canonical_prefix),
            kinds: kinds.transpose()?,
        })
    }

    fn passes(&self, event: &Event) -> bool {
        let key = event.key.as_deref();
        let is_key = |wanted: &String| key == Some(wanted);
        let has_prefix = |wanted: &String| key.is_some_and(|key| key.starts_with(&**wanted));
        self.key.as_ref().is_none_or(is_key)
            && self.prefix.as_ref().is_none_or(has_prefix)
            && (self.kinds.as_ref()).is_none_or(|kinds| kinds.contains(&event.kind))
    }
}

fn not_kept(id: &str, why: NotKept) -> Wrong {
    let anew = "read the table of keys again, and connect without Last-Event-ID";
    match why {
        NotKept::NoId => {
            let detail = format!("{id:?} is not the id of an event");
            Wrong::new(StatusCode::BAD_REQUEST, detail).field("Last-Event-ID")
        }
        NotKept::OtherRun => {
            let detail = format!("the event {id} is of another run or coordinator; {anew}");
            Wrong::new(StatusCode::GONE, detail)
        }
        NotKept::TooOld => {
            let detail = format!("the events after {id} are not kept any more; {anew}");
            Wrong::new(StatusCode::GONE, detail)
        }
    }
}

fn told(event: &Event) -> sse::Event {
    let kind = serde_json::to_value(event.kind).ok();
    let kind = kind
        .as_ref()
        .and_then(|kind| kind.as_str())
        .unwrap_or("message");
    sse::Event::default()
        .event(kind)
        .data(serde_json::to_string(event).unwrap_or_default())
}
