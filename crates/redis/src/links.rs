//! A connection to each server for each use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisResult, Value};

use crate::link::Link;
use crate::{Servers, Trouble};

pub use redis::cluster::NodeAddress as Server;

/// A server that has not answered by then is as good as away. redis-rs' default too.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// With what comes before and the answer, a call stays below its second.
const CONNECT_TIME: Duration = Duration::from_millis(300);

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

pub(crate) type Links = HashMap<(Server, Purpose), Arc<Link<MultiplexedConnection>>>;

impl Servers {
    /// Sends all at once. One answer per command, in order, complaints among them.
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
