//! One connection to one server. It is opened when it is needed, and again after it broke.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;

/// The pause before the second attempt to connect, and the longest pause before a later one.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(160)];

/// A connection that all its users share, as they share the attempts to open it.
pub(crate) struct Link<C> {
    /// The connection with its number. The number lets only a user of the broken connection drop
    /// it.
    current: Mutex<Option<(u64, C)>>,
    connecting: tokio::sync::Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    made: u64,
    failed: u32,
}

impl<C> Default for Link<C> {
    fn default() -> Self {
        Self {
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }
}

impl<C: Clone> Link<C> {
    /// Makes a call over the open connection, or over one that `connect` opens.
    ///
    /// After any error the next call opens another connection. A peer that vanished silently never
    /// breaks a connection, so timeouts must count as well.
    pub(crate) async fn call<T, E, Connecting, Calling>(
        &self,
        connect: impl FnOnce() -> Connecting,
        call: impl FnOnce(C) -> Calling,
    ) -> Result<T, E>
    where
        Connecting: Future<Output = Result<C, E>>,
        Calling: Future<Output = Result<T, E>>,
    {
        let (number, connection) = self.connection(connect).await?;
        let called = call(connection).await;
        if called.is_err() {
            self.current.lock().take_if(|(of, _)| *of == number);
        }
        called
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "servers are given time to come back"
    )]
    async fn connection<E, Connecting>(
        &self,
        connect: impl FnOnce() -> Connecting,
    ) -> Result<(u64, C), E>
    where
        Connecting: Future<Output = Result<C, E>>,
    {
        if let Some(current) = self.current.lock().clone() {
            return Ok(current);
        }
        let mut attempts = self.connecting.lock().await;
        if let Some(current) = self.current.lock().clone() {
            return Ok(current);
        }
        if attempts.failed > 0 {
            let doubled = PAUSES[0] * 2_u32.saturating_pow(attempts.failed - 1);
            tokio::time::sleep(doubled.min(PAUSES[1])).await;
        }
        // Count before the attempt, because a caller that gives up meanwhile has failed too.
        attempts.failed += 1;
        let connection = connect().await?;
        attempts.failed = 0;
        attempts.made += 1;
        let current = (attempts.made, connection);
        *self.current.lock() = Some(current.clone());
        Ok(current)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the time is virtual")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A server that numbers its connections.
    #[derive(Default)]
    struct Server {
        made: AtomicU32,
        link: Link<u32>,
    }

    impl Server {
        async fn call(&self, fails: impl Fn(u32) -> bool) -> Result<u32, ()> {
            let connect = || async {
                sleep(Duration::from_millis(5)).await;
                Ok(self.made.fetch_add(1, Ordering::Relaxed) + 1)
            };
            let call = |number| {
                let called = if fails(number) { Err(()) } else { Ok(number) };
                async move {
                    sleep(Duration::from_millis(u64::from(number))).await;
                    called
                }
            };
            self.link.call(connect, call).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_share_a_connection_until_it_breaks() {
        let server = Server::default();
        let many = join_all((0..9).map(|_| server.call(|_| false))).await;
        assert_eq!(many, [Ok(1); 9]);
        assert_eq!(server.call(|_| true).await, Err(()));
        assert_eq!(server.call(|_| false).await, Ok(2));
        // A user of the first connection, which notices late that it broke, must not drop the
        // second.
        let server = Server::default();
        let slow = server.link.call(
            || async { Ok(1) },
            |_| async {
                sleep(Duration::from_millis(50)).await;
                Err::<u32, ()>(())
            },
        );
        let others = async {
            sleep(Duration::from_millis(1)).await;
            assert_eq!(server.call(|_| true).await, Err(()));
            assert_eq!(server.call(|_| false).await, Ok(1));
        };
        let (slow, ()) = futures_util::future::join(slow, others).await;
        assert_eq!(slow, Err(()));
        assert_eq!(server.call(|_| false).await, Ok(1), "no third was made");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_shared_and_come_at_a_pace() {
        let (link, tried) = (Link::<u32>::default(), AtomicU32::new(0));
        let refused = || async {
            tried.fetch_add(1, Ordering::Relaxed);
            Err(())
        };
        let began = Instant::now();
        for _ in 0..10 {
            assert_eq!(link.call(refused, |_| async { Ok(()) }).await, Err(()));
        }
        // The pauses are 10, 20, 40, 80, and 160 ms five times.
        assert_eq!(began.elapsed(), Duration::from_millis(150 + 5 * 160));
        assert_eq!(tried.load(Ordering::Relaxed), 10);
        // A caller that gives up while it connects has failed too.
        let hangs = link.call(std::future::pending::<Result<u32, ()>>, |_| async {
            Ok(())
        });
        let hangs = tokio::time::timeout(Duration::from_secs(1), hangs).await;
        assert!(hangs.is_err());
        let began = Instant::now();
        let comes = link.call(
            || async { Ok::<_, ()>(7) },
            |number| async move { Ok(number) },
        );
        assert_eq!(comes.await, Ok(7));
        assert_eq!(began.elapsed(), Duration::from_millis(160));
    }
}
