//! The stream of events: holds, rates, breakers, quarantines, and settings of operators.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{self, KeepAlive};
use futures_util::Stream;
use futures_util::stream::unfold;
use politely_api::wire::{Event, EventKind};
use tokio::sync::broadcast::error::RecvError;

use super::Api;

/// Streams server-sent events: `event:` is the kind, `data:` is an [`Event`] as JSON.
#[utoipa::path(get, path = "/api/v1/events", responses(
    (status = 200, body = Event, content_type = "text/event-stream"),
))]
pub(super) async fn events(
    State(api): State<Api>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let events = api.coordinator.watch().events();
    let closing = api.coordinator.closing();
    let start = (events, closing, api.replaced.clone());
    let stream = unfold(
        start,
        |(mut events, mut closing, mut replaced)| async move {
            let heard = tokio::select! {
                heard = events.recv() => heard,
                _ = closing.wait_for(|closed| *closed) => return None,
                // The tokens were replaced: the stream ends, and the reader reconnects with a valid
                // token.
                Ok(()) = replaced.changed() => return None,
            };
            let event = match heard {
                Ok(event) => event,
                Err(RecvError::Closed) => return None,
                Err(RecvError::Lagged(count)) => Arc::new(Event {
                    kind: EventKind::Missed,
                    key: None,
                    text: format!("{count} events were dropped"),
                    rate: None,
                    hold_ms: None,
                }),
            };
            Some((Ok(told(&event)), (events, closing, replaced)))
        },
    );
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(10)))
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
