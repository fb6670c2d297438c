//! A process that stood still (SIGSTOP, a laptop's lid) and goes on.

use std::sync::atomic::AtomicU64;

use super::*;

/// Its clock is ahead of Tokio's by what it stood still.
fn frozen_for(offset: &Arc<AtomicU64>) -> Clock {
    let (clock, offset) = (Clock::tokio(), Arc::clone(offset));
    Clock::given(move || clock.now() + Duration::from_secs(offset.load(Ordering::Relaxed)))
}

/// That nothing was heard meanwhile is not the engine's fault.
#[tokio::test(start_paused = true)]
async fn who_stood_still_does_not_blame_the_engine() {
    let (offset, memory) = (Arc::default(), memory());
    let clock = frozen_for(&offset);
    let config = Arc::new(Config::fixed(10.0, 1.0));
    let shared = Shared::new(config, clock.clone(), 1 << 10, 7, Away::Closed);
    let limiter = driven(shared, clock, Arc::new(memory));
    assert!(limiter.trouble().is_some(), "nothing was heard of it yet");
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert_eq!(limiter.trouble(), None);
    offset.store(60, Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(limiter.trouble(), None);
        sleep(Duration::from_millis(50)).await;
    }
    limiter.acquire(&key()).await.unwrap().report(&ok());
}
