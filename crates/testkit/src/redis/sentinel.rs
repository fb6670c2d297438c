//! A master, its replica, and a single Sentinel. A single Sentinel decides alone and at once.
//! Several might need seconds for an election.

use super::{RedisServer, Role, free_place, wait_for};

/// The Sentinel's name for the master.
const NAME: &str = "mymaster";

/// A running master with its replica and Sentinel.
pub struct Sentineled {
    /// The first master.
    pub master: RedisServer,
    /// The server that a failover promotes.
    pub replica: RedisServer,
    /// The Sentinel, which clients ask for the master.
    pub sentinel: RedisServer,
}

impl Sentineled {
    /// Starts the servers with `config`. Waits until the replica is in sync and the Sentinel knows
    /// it.
    pub fn start(config: &str) -> Self {
        let master = RedisServer::start(config);
        let (ip, port) = (master.address.ip(), master.address.port());
        let replica = RedisServer::start(&format!("{config}\nreplicaof {ip} {port}\n"));
        replica.wait_for_info("master_link_status:up");
        master.wait_for_acknowledgements();
        let watches = format!(
            "sentinel monitor {NAME} {ip} {port} 1
sentinel down-after-milliseconds {NAME} 500
sentinel failover-timeout {NAME} 2000
"
        );
        let sentinel = RedisServer::start_as(Role::Sentinel, free_place(), &watches);
        sentinel.wait_for_info(&format!(
            "master0:name={NAME},status=ok,address={ip}:{port},slaves=1,sentinels=1"
        ));
        // By default a Sentinel polls every ten seconds, and makes a returned master a replica
        // after eight.
        for period in ["info-period", "publish-period"] {
            sentinel.order(&["sentinel", "debug", period, "100"]);
        }
        Self {
            master,
            replica,
            sentinel,
        }
    }

    /// Returns the address of the Sentinel in the form of `--store`.
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{NAME}", self.sentinel.address)
    }

    /// Waits until the Sentinel has promoted the replica.
    pub fn wait_for_promotion(&self) {
        self.replica.wait_for_info("role:master");
        let port = self.replica.address.port().to_string();
        let asked = ["sentinel", "get-master-addr-by-name", NAME];
        wait_for("the Sentinel says so", || {
            self.sentinel.cli(&asked).ends_with(&port)
        });
    }
}
