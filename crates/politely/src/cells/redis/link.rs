//! One connection to one server, made when it is needed and again when it broke.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult, Value};

use crate::sync::sleep;

/// What a connection is for. Each use has connections of its own: a `WAIT` keeps everything behind it waiting, and notices
/// need another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
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
    // Held while connecting: all who wait share one attempt.
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that only who used the broken one drops it.
    made: u64,
    failures: u32,
}

impl Link {
    pub(super) fn new(client: Client, config: AsyncConnectionConfig) -> Self {
        Self {
            client,
            config: config
                .set_response_timeout(Some(ANSWER_TIME))
                .set_connection_timeout(Some(CONNECT_TIME)),
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Sends all at once. One answer per command, in order, complaints among them.
    pub(super) async fn send(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let (made, mut connection) = self.connection().await?;
        let sent = connection
            .send_packed_commands(commands, 0, commands.len())
            .await;
        if sent.is_err() {
            let mut state = self.state.lock().await;
            // Late answers count as well: a peer that vanished without a word never breaks the connection.
            if state.made == made {
                state.connection = None;
            }
        }
        sent
    }

    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((state.made, connection.clone()));
        }
        if state.failures > 0 {
            let doubled = PAUSES[0] * 2_u32.saturating_pow(state.failures - 1);
            sleep(doubled.min(PAUSES[1])).await;
        }
        // Counted first: a caller who gives up meanwhile has failed too.
        state.failures += 1;
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        state.failures = 0;
        state.made += 1;
        state.connection = Some(connection.clone());
        Ok((state.made, connection))
    }
}
