//! One connection to one server, made when it is needed and again when it broke.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult, Value};

use crate::sync::sleep;

/// What a connection is for. Each use has connections of its own: a `WAIT` keeps everything behind it waiting, and notices
/// need another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    Calls,
    /// Changes that replicas have to acknowledge.
    Durable,
    Notices,
    Sentinel,
}

/// A server that has not answered by then is as good as away. redis-rs' default too.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// With what comes before and the answer, a call stays below its second.
const CONNECT_TIME: Duration = Duration::from_millis(300);
/// Before the second attempt to connect, and before any later one at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(160)];

pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    /// With its number, so that only who used the broken one drops it.
    current: Mutex<Option<(u64, MultiplexedConnection)>>,
    connecting: tokio::sync::Mutex<Attempts>,
}

/// All who need a connection share an attempt.
#[derive(Default)]
struct Attempts {
    made: u64,
    failed: u32,
}

impl Link {
    pub(super) fn new(client: Client, config: AsyncConnectionConfig) -> Self {
        Self {
            client,
            config: config
                .set_response_timeout(Some(ANSWER_TIME))
                .set_connection_timeout(Some(CONNECT_TIME)),
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// Sends all at once. One answer per command, in order, complaints among them.
    pub(super) async fn send(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let (number, mut connection) = self.connection().await?;
        let sent = connection
            .send_packed_commands(commands, 0, commands.len())
            .await;
        if sent.is_err() {
            // Late answers count as well: a peer that vanished without a word never breaks the connection.
            let mut current = self.current.lock();
            current.take_if(|(of, _)| *of == number);
        }
        sent
    }

    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        if let Some(current) = self.current.lock().clone() {
            return Ok(current);
        }
        let mut attempts = self.connecting.lock().await;
        if let Some(current) = self.current.lock().clone() {
            return Ok(current);
        }
        if attempts.failed > 0 {
            let doubled = PAUSES[0] * 2_u32.saturating_pow(attempts.failed - 1);
            sleep(doubled.min(PAUSES[1])).await;
        }
        // Counted first: who gives up meanwhile has failed too.
        attempts.failed += 1;
        let client = &self.client;
        let connection = client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        attempts.failed = 0;
        attempts.made += 1;
        let current = (attempts.made, connection);
        *self.current.lock() = Some(current.clone());
        Ok(current)
    }
}
