//! The sending of one attempt, with repeats of a request that the server did not process.

use http::Response;
use politely_core::Timestamp;

use super::{Attempts, Exchange, Unprocessed};

/// Maximum number of repeats of a request that the server did not process, before it counts as
/// failed.
pub const REPEATS_MAX: u32 = 2;

impl Attempts {
    /// Sends `request`, and its copy `spare` while the server does not process it. Also returns the
    /// time of the last sending.
    pub(super) async fn send<X: Exchange>(
        &self,
        exchange: &mut X,
        mut request: X::Request,
        mut spare: Option<X::Request>,
        mut sent: Timestamp,
    ) -> (Result<Response<X::Body>, X::Error>, Timestamp) {
        let origin = X::url(&request).map_or(0, |url| self.answered.origin(&url));
        let mut was_kept = self.answered.has(origin);
        for _ in 0..REPEATS_MAX {
            let again = spare.as_ref().and_then(X::copy);
            let error = match exchange.send(request).await {
                Ok(response) => {
                    self.answered.add(origin);
                    return (Ok(response), sent);
                }
                Err(error) => error,
            };
            let repeats = match X::unprocessed(&error) {
                Some(Unprocessed::Told) => true,
                Some(Unprocessed::Closed) => was_kept,
                Some(Unprocessed::Http1Required) | None => false,
            };
            self.answered.remove(origin);
            let Some(copy) = spare.take().filter(|_| repeats) else {
                return (Err(error), sent);
            };
            tracing::debug!("not processed; repeated at once");
            if let Err(error) = exchange.ready().await {
                return (Err(error), sent);
            }
            was_kept &= again.is_some();
            (request, spare) = (copy, again);
            sent = self.limiter.now();
        }
        let result = exchange.send(request).await;
        if result.is_ok() {
            self.answered.add(origin);
        }
        (result, sent)
    }
}
