//! A master, its replica, and two Sentinels that watch them.

use super::{RedisServer, Role, free_place, wait_for};

/// The name the Sentinels know the master by.
const NAME: &str = "mymaster";

pub(crate) struct Sentineled {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinels: [RedisServer; 2],
}

impl Sentineled {
    /// Started when the replica is in sync and both Sentinels know of it and of each other. `config` is the servers'.
    pub(crate) fn start(config: &str) -> Self {
        let master = RedisServer::start(config);
        let (ip, port) = (master.address.ip(), master.address.port());
        let replica = RedisServer::start(&format!("{config}\nreplicaof {ip} {port}\n"));
        replica.wait_for_info("master_link_status:up");
        let watches = format!(
            "sentinel monitor {NAME} {ip} {port} 2
sentinel down-after-milliseconds {NAME} 500
sentinel failover-timeout {NAME} 2000
"
        );
        let sentinels =
            [(); 2].map(|()| RedisServer::start_as(Role::Sentinel, free_place(), &watches));
        for sentinel in &sentinels {
            let knows =
                format!("master0:name={NAME},status=ok,address={ip}:{port},slaves=1,sentinels=2");
            sentinel.wait_for_info(&knows);
        }
        Self {
            master,
            replica,
            sentinels,
        }
    }

    pub(crate) fn url(&self) -> String {
        let [one, two] = &self.sentinels;
        format!("redis+sentinel://{},{}/{NAME}", one.address, two.address)
    }

    /// Returns when the Sentinels have made the replica master.
    pub(crate) fn wait_for_promotion(&self) {
        self.replica.wait_for_info("role:master");
        let port = self.replica.address.port().to_string();
        for sentinel in &self.sentinels {
            let asked = ["sentinel", "get-master-addr-by-name", NAME];
            wait_for("the Sentinels agree", || {
                sentinel.cli(&asked).ends_with(&port)
            });
        }
    }
}
