//! Where the frontier of a test is.

use std::sync::Arc;

use politely::store::Unavailable;
use politely_redis::engine::Redis;
use politely_server::{Coordinator, FrontierService, FrontierSettings, Settings};
use politely_testkit::redis::{Cluster, RedisServer};
use tempfile::TempDir;

/// Where the frontier of a test is. It outlives the coordinators.
pub(super) enum Place {
    Folder(TempDir),
    Redis(RedisServer),
    Cluster(Cluster),
}

impl Place {
    pub(super) fn folder() -> Self {
        Self::Folder(tempfile::tempdir().unwrap())
    }

    pub(super) fn redis() -> Self {
        Self::Redis(RedisServer::start(""))
    }

    pub(super) fn cluster() -> Self {
        Self::Cluster(Cluster::start())
    }

    /// Returns a coordinator and its frontier. Those of one Redis share both the keys and the
    /// frontier.
    pub(super) fn open(
        &self,
        settings: Settings,
        rules: FrontierSettings,
    ) -> (Coordinator, FrontierService) {
        let url = match self {
            Self::Folder(folder) => {
                let coordinator = Coordinator::new(settings).unwrap();
                let frontier = FrontierService::open(folder.path(), rules, &coordinator);
                return (coordinator, frontier.unwrap());
            }
            Self::Redis(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        };
        let engine = || Arc::new(Redis::connect(&url).unwrap());
        let coordinator =
            Coordinator::shared(settings, engine(), Unavailable::Closed, None).unwrap();
        let coordinator = coordinator.share_config(engine());
        let frontier = FrontierService::shared(&url, rules, &coordinator).unwrap();
        (coordinator, frontier)
    }
}

/// Makes two tests of a function: over a frontier in a folder, and over one in Redis.
macro_rules! over_both {
    ($name:ident) => {
        mod $name {
            use super::Place;

            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_folder() {
                super::$name(Place::folder()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn in_redis() {
                super::$name(Place::redis()).await;
            }
        }
    };
}

pub(super) use over_both;
