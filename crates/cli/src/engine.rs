//! The engine of `--store`, which the scheme of its URL selects.

use std::sync::Arc;

use politely::cells::Engine;
#[cfg(feature = "postgres")]
use politely::cells::postgres::Postgres;
use politely::cells::redis::Redis;
#[cfg(feature = "zookeeper")]
use politely::cells::zookeeper::ZooKeeper;

use crate::exit::Wrong;

/// The schemes of Redis and Valkey, up to the `+` of Sentinel and Cluster.
const REDIS: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];

/// Creates an engine for the servers of `url`. It connects at its first call.
pub(crate) fn connect(url: &str) -> Result<Arc<dyn Engine>, Wrong> {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    match scheme.split('+').next().unwrap_or_default() {
        _ if is_redis(url) => engine(Redis::connect(url)),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(crate::build::without("PostgreSQL", "postgres")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => engine(Postgres::connect(url)),
        #[cfg(not(feature = "zookeeper"))]
        "zookeeper" | "zookeepers" => Err(crate::build::without("ZooKeeper", "zookeeper")),
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeepers" => engine(ZooKeeper::connect(url)),
        _ => Err(Wrong(format!(
            "--store: unknown scheme \"{scheme}\"; use redis://, redis+sentinel://, redis+cluster://, postgres:// or zookeeper://"
        ))),
    }
}

fn engine<E: Engine>(
    connected: Result<E, impl std::fmt::Display>,
) -> Result<Arc<dyn Engine>, Wrong> {
    match connected {
        Ok(engine) => Ok(Arc::new(engine)),
        Err(why) => Err(Wrong(format!("--store: {why}"))),
    }
}

/// Returns whether the servers of `url` are Redis or Valkey.
pub(crate) fn is_redis(url: &str) -> bool {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    REDIS.contains(&scheme.split('+').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_selects_the_engine() {
        for url in ["redis://a", "valkeys+cluster://a,b"] {
            assert!(connect(url).is_ok(), "{url}");
        }
        for (url, told) in [
            (
                "mysql://a",
                "--store: unknown scheme \"mysql\"; use redis://",
            ),
            ("a:2181", "--store: unknown scheme \"\"; use redis://"),
            ("redis://a:b", "`a:b` is no server's address"),
            (
                "zookeeper+tls://a",
                "--store: unknown scheme \"zookeeper+tls\"",
            ),
        ] {
            let error = connect(url).err().expect(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_postgres_url_selects_a_server() {
        assert!(connect("postgres://ann@a/db").is_ok());
        let error = connect("postgres://a/db?sslmode=prefer").err();
        let error = error.expect("no engine").to_string();
        assert!(error.starts_with("--store: \"sslmode=prefer\""), "{error}");
    }

    #[cfg(feature = "zookeeper")]
    #[test]
    fn a_zookeeper_url_selects_an_ensemble() {
        assert!(connect("zookeeper://a,b,c/x").is_ok());
        for (url, told) in [
            ("zookeeper://a:b", "\"a:b\" is not a server's address"),
            ("zookeepers://a", "without TLS or in a tunnel"),
        ] {
            let error = connect(url).err().expect(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }

    #[cfg(not(feature = "zookeeper"))]
    #[test]
    fn a_build_without_zookeeper_names_the_feature() {
        let error = connect("zookeeper://a")
            .err()
            .expect("no engine")
            .to_string();
        assert!(error.contains("--features zookeeper"), "{error}");
    }
}
