//! A process that was suspended (SIGSTOP, a closed laptop) and goes on.

use std::sync::atomic::AtomicU64;

use super::*;

/// Returns a clock that is ahead of Tokio's by the time of the suspension.
fn frozen_for(offset: &Arc<AtomicU64>) -> Clock {
    let (clock, offset) = (Clock::tokio(), Arc::clone(offset));
    Clock::given(move || clock.now() + Duration::from_secs(offset.load(Ordering::Relaxed)))
}

/// Regression: the silence was reported as an outage of the engine.
#[tokio::test(start_paused = true)]
async fn who_stood_still_does_not_blame_the_engine() {
    let (offset, memory) = (Arc::default(), memory());
    let clock = frozen_for(&offset);
    let config = Arc::new(Config::fixed(10.0, 1.0));
    let store = Store::new(config, clock.clone(), 1 << 10, 7, Unavailable::Closed);
    let limiter = driven(store, clock, Arc::new(memory));
    assert!(
        limiter.last_error().is_some(),
        "nothing was heard of it yet"
    );
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert_eq!(limiter.last_error(), None);
    offset.store(60, Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(limiter.last_error(), None);
        sleep(Duration::from_millis(50)).await;
    }
    limiter.acquire(&key()).await.unwrap().report(&ok());
}
