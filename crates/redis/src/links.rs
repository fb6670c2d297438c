//! A connection to each server for each purpose.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisResult, Value};

use crate::link::Link;
use crate::{Servers, Trouble};

pub use redis::cluster::NodeAddress as Server;

/// After this time without an answer a server counts as unavailable. This is also redis-rs'
/// default.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// The time to connect. Together with the pause before and the answer after, a call stays below one
/// second.
const CONNECT_TIME: Duration = Duration::from_millis(300);

/// The purpose of a connection. Each purpose has connections of its own: a `WAIT` delays every
/// command behind it, and notices need another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    Calls,
    /// Changes that replicas must acknowledge.
    Durable,
    Notices,
    Sentinel,
}

pub(crate) type Links = HashMap<(Server, Purpose), Arc<Link<MultiplexedConnection>>>;

impl Servers {
    /// Sends all commands at once. Returns one answer per command, in order, errors among them.
    pub(crate) async fn send(
        &self,
        server: &Server,
        purpose: Purpose,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Trouble> {
        let link = (server.clone(), purpose);
        let link = Arc::clone(self.links.lock().entry(link).or_default());
        let connect = || self.connect_to(server, purpose);
        let sent = link.call(connect, |mut connection| async move {
            let all = commands.len();
            connection.send_packed_commands(commands, 0, all).await
        });
        sent.await.map_err(|why| {
            self.forget();
            Trouble::Server(server.clone(), why)
        })
    }

    async fn connect_to(
        &self,
        server: &Server,
        purpose: Purpose,
    ) -> RedisResult<MultiplexedConnection> {
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(ANSWER_TIME))
            .set_connection_timeout(Some(CONNECT_TIME));
        if let (Purpose::Notices, Some(hear)) = (purpose, self.hear.get().cloned()) {
            config = config.set_push_sender(move |push| {
                hear(push);
                Ok::<(), ()>(())
            });
        }
        let client = self.place.client(server, purpose)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connecting.await
    }
}
