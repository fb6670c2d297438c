//! Reads the body of an answer from its connection.

use std::error::Error;
use std::time::Duration;

use hyper::body::Incoming;
use politely::coding::CodingError;
use politely::core::signal::Failure;

use super::answer::{Answer, Came, Lost};
use super::body::{Enough, Intake};
use super::client::failed;
use super::egresses::WayFailed;
use super::ways::next;

/// How long the rest of an unwanted body may take.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

/// Reads a body. Returns the failure, unless the body is not wanted.
pub(super) async fn read_body(
    coming: &mut Incoming,
    intake: &mut Intake,
    is_wanted: bool,
    answer: &mut Answer,
) -> Option<Result<Came, WayFailed>> {
    let until = (!is_wanted).then(|| tokio::time::Instant::now() + DISCARD_TIME_MAX);
    loop {
        let part = next(coming, until).await;
        if let Ok(Some(part)) = &part {
            answer.wire.bytes += part.len() as u64;
        }
        let kept = match (&part, answer.exchange.as_mut()) {
            (Ok(Some(part)), Some(exchange)) => exchange.push(part),
            // An unwanted body is not waited for to its end.
            (Ok(None), Some(exchange)) => {
                if until.is_none_or(|until| tokio::time::Instant::now() < until) {
                    exchange.end();
                }
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(why) = kept {
            intake.sink().enough = Some(Enough::not_saved(&why));
            return None;
        }
        let taken = match part {
            Ok(Some(part)) => intake.push(&part),
            Ok(None) => intake.end().map(|()| false),
            // The status of an error page is enough, even if its body breaks off.
            Err(_) if !is_wanted => return None,
            Err(error) => return Some(broke_off(&*error)),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) if !is_wanted => return None,
            Err(error) => {
                return Some(Ok(Came::Failed(Lost {
                    failure: undecoded(&error),
                    words: error.to_string(),
                    trouble: None,
                    is_http2: false,
                })));
            }
        }
    }
}

/// Returns the failure for an answer whose head came.
fn broke_off(error: &(dyn Error + 'static)) -> Result<Came, WayFailed> {
    let mut came = failed(error)?;
    if let Came::Failed(lost) = &mut came
        && lost.failure == Failure::Reset
    {
        lost.failure = Failure::CutOff;
    }
    Ok(came)
}

/// Returns the failure for a body that cannot be decoded.
fn undecoded(error: &CodingError) -> Failure {
    match error {
        CodingError::CutOff(_) => Failure::CutOff,
        _ => Failure::Malformed,
    }
}
