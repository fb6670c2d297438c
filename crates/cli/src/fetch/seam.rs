//! Stands in for politely::core::retry until it lands.
use politely::core::signal::Report;
use politely::core::{Rng, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) refusals: u32,
}
pub(crate) enum Next {
    Retry { after: std::time::Duration, requeue: bool },
    GiveUp(String),
    Done,
}
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) attempts_max: u32,
}
impl Attempt {
    pub(crate) fn first(_: http::Method) -> Self {
        Self { number: 1, refusals: 0 }
    }
    pub(crate) fn following(mut self, report: &Report, _delay: std::time::Duration) -> Self {
        self.number += 1;
        self.refusals += u32::from(report.signal == politely::core::signal::Signal::RateLimited);
        self
    }
}
impl Policy {
    pub(crate) fn crawler() -> Self {
        Self { attempts_max: 5 }
    }
    pub(crate) fn decide(&self, attempt: &Attempt, report: &Report, _rng: &mut Rng, _now: Timestamp) -> Next {
        use politely::core::signal::{Failure, Signal};
        let counted = attempt.number - attempt.refusals.min(attempt.number);
        match report.signal {
            Signal::Ok => Next::Done,
            Signal::RateLimited if attempt.refusals < 100 => {
                Next::Retry { after: std::time::Duration::ZERO, requeue: true }
            }
            Signal::Blocked => Next::GiveUp("blocked".into()),
            Signal::UrlError if report.status != Some(500) => Next::GiveUp("status".into()),
            _ if matches!(report.failure, Some(Failure::NoSuchHost | Failure::Tls | Failure::Malformed)) => {
                Next::GiveUp("permanent".into())
            }
            _ if counted >= self.attempts_max => Next::GiveUp(format!("failed {counted} times")),
            _ => Next::Retry { after: std::time::Duration::from_millis(300 << counted.min(5)), requeue: false },
        }
    }
}
