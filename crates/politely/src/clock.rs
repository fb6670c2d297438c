//! The only source of time in this crate.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use politely_core::Timestamp;
use politely_core::signal::WallClock;

/// A source of [`Timestamp`]s.
///
/// It reads the wall clock once, when it is created, and is monotonic from there. So states that
/// were written before a restart are still valid after it, and a step of the wall clock has no
/// effect.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The machine's monotonic clock, and the wall clock's time at its beginning.
    Monotonic {
        clock: Monotonic,
        origin: Timestamp,
    },
    Given(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    /// Returns the machine's clock. Reading it takes about 10 ns with the feature `quanta`, and
    /// twice as long without it.
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn system() -> Self {
        let clock = Monotonic::start();
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self(Source::Monotonic {
            clock,
            origin: Timestamp::ZERO + since_1970,
        })
    }

    /// Returns Tokio's clock, which stands still and jumps with `tokio::time::pause`.
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn tokio() -> Self {
        let began = tokio::time::Instant::now();
        Self::given(move || Timestamp::from_micros(1) + began.elapsed())
    }

    /// Returns a clock that reads `now`, which should not run backwards.
    ///
    /// Waiters are still woken by Tokio's timers. For virtual time use [`Clock::tokio`].
    pub fn given(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Given(Arc::new(now)))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Monotonic { clock, origin } => {
                Timestamp::from_micros(origin.as_micros() + clock.elapsed_ns() / 1_000)
            }
            Source::Given(now) => now(),
        }
    }
}

/// The machine's monotonic clock, from its first reading.
#[cfg(feature = "quanta")]
#[derive(Clone)]
struct Monotonic {
    clock: quanta::Clock,
    began: u64,
}

#[cfg(feature = "quanta")]
impl Monotonic {
    fn start() -> Self {
        let clock = quanta::Clock::new();
        let began = clock.raw();
        Self { clock, began }
    }

    #[inline]
    fn elapsed_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.began, self.clock.raw())
    }
}

/// The machine's monotonic clock, from its first reading.
#[cfg(not(feature = "quanta"))]
#[derive(Clone)]
struct Monotonic(std::time::Instant);

#[cfg(not(feature = "quanta"))]
#[expect(clippy::disallowed_methods, reason = "this is where time enters")]
impl Monotonic {
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Returns the machine's wall clock, which the dates in responses refer to.
///
/// Only classification needs it. No decision is timed by it.
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
