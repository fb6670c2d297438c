//! The spans and events that a subscriber receives for one refused and one served attempt.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use politely::attempts::Attempts;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::server::{Limit, Server};
use crate::support::{get, limiter, quick, service};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_attempt_is_a_span_and_a_hold_an_event() {
    let limit = Limit {
        rate: 20.0,
        burst: 1.0,
        retry_after: None,
    };
    let server = Server::start(limit).await.unwrap();
    let service = service(Attempts::new(limiter(500.0)).policy(quick()));
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    {
        let _watching = tracing::subscriber::set_default(subscriber);
        for _ in 0..2 {
            // A test in another thread may have reached the span first, without a subscriber.
            // `tracing` caches that there was none.
            tracing::callsite::rebuild_interest_cache();
            assert_eq!(get(&service, &server.url("/")).await.status(), 200);
        }
    }
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let key = server.address;
    let has = |words: &str| {
        let found = text.lines().any(|line| line.contains(words));
        assert!(found, "{words} in {text}");
    };
    has(&format!("politely.request{{key={key} attempt=1 waited_ms="));
    has("status=200 signal=Ok");
    has("status=429 signal=RateLimited");
    has("attempt=2 waited_ms=");
    has(&format!("hold key={key} signal=RateLimited hold_ms="));
}
