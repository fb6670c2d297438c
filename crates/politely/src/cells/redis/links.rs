//! A connection to each server for each use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ParsingError, Pipeline, PushInfo, PushKind, RedisResult, Value,
    from_redis_value,
};

use super::super::link::Link;
use super::super::{EngineError, Notice};
use super::Redis;
use super::trouble::complaint;

pub(super) use redis::cluster::NodeAddress as Server;

/// A server that has not answered by then is as good as away. redis-rs' default too.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// With what comes before and the answer, a call stays below its second.
const CONNECT_TIME: Duration = Duration::from_millis(300);

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

pub(super) type Links = HashMap<(Server, Purpose), Arc<Link<MultiplexedConnection>>>;

impl Redis {
    /// Sends all at once. One answer per command, in order, complaints among them.
    pub(super) async fn send(
        &self,
        server: &Server,
        purpose: Purpose,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, EngineError> {
        let link = (server.clone(), purpose);
        let link = Arc::clone(self.links.lock().entry(link).or_default());
        let connect = || self.connect_to(server, purpose);
        let sent = link.call(connect, |mut connection| async move {
            let all = commands.len();
            connection.send_packed_commands(commands, 0, all).await
        });
        sent.await.map_err(|why| {
            self.forget();
            complaint(server, &why)
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
                if let Ok(Some(notice)) = notice(push) {
                    hear(notice);
                }
                Ok::<(), ()>(())
            });
        }
        let client = self.place.client(server, purpose)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connecting.await
    }
}

/// What a server says unasked.
fn notice(push: PushInfo) -> Result<Option<Notice>, ParsingError> {
    let data = Value::Array(push.data);
    Ok(match push.kind {
        PushKind::SMessage => {
            let (cell, value) = from_redis_value(data)?;
            Some(Notice::Written { cell, value })
        }
        // If nobody asked for it: the channel has moved.
        PushKind::SUnsubscribe => {
            let (cell, _left): (_, u64) = from_redis_value(data)?;
            Some(Notice::Unheard { cell: Some(cell) })
        }
        PushKind::Disconnection => Some(Notice::Unheard { cell: None }),
        _ => None,
    })
}
