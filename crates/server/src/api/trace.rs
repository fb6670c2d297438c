//! Spans of acquires, for an OpenTelemetry collector.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use politely::core::Timestamp;
use politely_api::wire::{Answer, Item};
use politely_otlp::{Acquire, AcquireResult, Parent};

use super::Api;
use crate::coordinator::Outcome;

/// The span that caused a call. It is read only if spans are sent.
pub(super) struct Cause(Option<Parent>);

impl FromRequestParts<Api> for Cause {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let collector = api.collector.as_ref();
        Ok(Self(collector.map(|_| Parent::of(&parts.headers))))
    }
}

impl Api {
    /// Sends one span per answered item of a call that began at `began`.
    pub(super) fn trace(
        &self,
        cause: &Cause,
        client: &str,
        items: &[Item],
        began: Timestamp,
        outcome: &Outcome,
    ) {
        let (Some(collector), Some(parent)) = (&self.collector, &cause.0) else {
            return;
        };
        let took = self.coordinator.now().since(began);
        let key_of = |item: u32| self.coordinator.key_name(&items[item as usize]);
        for answer in &outcome.answers {
            let (key, reason, result) = match answer {
                Answer::Granted(grant) => {
                    let waited = outcome.waited.iter().find(|(item, _)| *item == grant.item);
                    let reason = waited.map(|(_, reason)| reason.to_string());
                    (Some(grant.key.clone()), reason, AcquireResult::Granted)
                }
                Answer::Wait { item, reason, .. } => {
                    (key_of(*item), Some(reason.clone()), AcquireResult::Wait)
                }
                Answer::Refused { item, reason, .. } => {
                    (key_of(*item), Some(reason.clone()), AcquireResult::Refused)
                }
                Answer::Error { item, error } => {
                    let reason = format!("{}: {}", error.field, error.detail);
                    (key_of(*item), Some(reason), AcquireResult::Error)
                }
            };
            let is_at_once = result == AcquireResult::Granted && reason.is_none();
            collector.acquired(
                parent,
                &Acquire {
                    key: key.as_deref().unwrap_or_default(),
                    worker: Some(client),
                    waited: if is_at_once { Duration::ZERO } else { took },
                    reason: reason.as_deref(),
                    result,
                },
            );
        }
    }
}
