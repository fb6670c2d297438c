//! The one place where time comes from.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use politely_core::Timestamp;
use politely_core::signal::WallClock;

/// A source of [`Timestamp`]s: the wall clock when it was made, and monotonic from there, so that states
/// written before a restart still mean something after it, and a step of the wall clock moves nothing.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The clock's raw reading at the beginning, and what the wall clock said then.
    Monotonic {
        clock: quanta::Clock,
        began: u64,
        origin: Timestamp,
    },
    Given(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    /// The machine's clock (about 10 ns a look).
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn system() -> Self {
        let clock = quanta::Clock::new();
        let began = clock.raw();
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self(Source::Monotonic {
            clock,
            began,
            origin: Timestamp::ZERO + since_1970,
        })
    }

    /// Tokio's clock: stands still and jumps with `tokio::time::pause`.
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn tokio() -> Self {
        let began = tokio::time::Instant::now();
        Self::given(move || Timestamp::from_micros(1) + began.elapsed())
    }

    /// Whatever `now` says; it should not run backwards. Who waits is woken by Tokio's timers all the same: for virtual time take
    /// [`Clock::tokio`].
    pub fn given(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Given(Arc::new(now)))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Monotonic {
                clock,
                began,
                origin,
            } => {
                let nanos = clock.delta_as_nanos(*began, clock.raw());
                Timestamp::from_micros(origin.as_micros() + nanos / 1_000)
            }
            Source::Given(now) => now(),
        }
    }
}

/// The machine's wall clock, which is what servers mean when they say a date. Only classifying needs it; no
/// decision is timed by it.
#[expect(clippy::disallowed_methods, reason = "this is where time enters")]
pub fn wall_clock() -> WallClock {
    SystemTime::now().into()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Monotonic { .. } => f.write_str("Clock::system"),
            Source::Given(_) => f.write_str("Clock::given"),
        }
    }
}
