//! A cluster of three masters, each with a third of the slots.

use super::{RedisServer, Role, another_port, free_place, wait_for};

const SLOTS: u32 = 16_384;

/// A running cluster.
pub struct Cluster {
    /// The masters.
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Starts the cluster and waits until every node knows all nodes.
    pub fn start() -> Self {
        Self::with_nodes(3)
    }

    fn with_nodes(masters: u32) -> Self {
        let nodes: Vec<RedisServer> = (0..masters).map(|_| node()).collect();
        for (i, node) in (0..).zip(&nodes) {
            let first = (SLOTS * i / masters).to_string();
            let last = (SLOTS * (i + 1) / masters - 1).to_string();
            node.order(&["cluster", "addslotsrange", &first, &last]);
            node.order(&["cluster", "set-config-epoch", &(i + 1).to_string()]);
            node.meet(&nodes[0]);
        }
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            node.wait_for_cluster(masters);
        }
        cluster
    }

    /// Returns the addresses of all nodes in the form of `--store`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| node.address.to_string())
            .collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Starts a replica of a node and waits until it is in sync.
    pub fn replica_of(&self, master: usize) -> RedisServer {
        let replica = node();
        replica.meet(&self.nodes[master]);
        let id = self.nodes[master].cli(&["cluster", "myid"]);
        wait_for("they have met", || {
            replica.cli(&["cluster", "replicate", &id]) == "OK"
        });
        replica.wait_for_info("master_link_status:up");
        self.nodes[master].wait_for_acknowledgements();
        let known = format!("{} ", replica.cli(&["cluster", "myid"]));
        for node in &self.nodes {
            wait_for("all know it", || {
                let nodes = node.cli(&["cluster", "nodes"]);
                let line = nodes.lines().find(|line| line.starts_with(&known));
                line.is_some_and(|line| line.contains(" slave "))
            });
        }
        replica
    }

    /// Returns the node that owns the slot of a cell.
    pub fn owner(&self, cell: &str) -> usize {
        let slot: u32 = self.slot(cell).parse().expect("a slot");
        let nodes = u32::try_from(self.nodes.len()).expect("a few");
        let owns = |i: u32| (SLOTS * i / nodes..SLOTS * (i + 1) / nodes).contains(&slot);
        (0..nodes).position(owns).expect("an owner")
    }

    fn slot(&self, cell: &str) -> String {
        self.nodes[0].cli(&["cluster", "keyslot", cell])
    }

    /// Begins to move the slot of a cell, and moves the cell. The old owner then answers `ASK`.
    pub fn begin_move(&self, cell: &str, from: usize, to: usize) {
        let slot = self.slot(cell);
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.order(&[
            "cluster",
            "setslot",
            &slot,
            "importing",
            &from.cli(&["cluster", "myid"]),
        ]);
        from.order(&[
            "cluster",
            "setslot",
            &slot,
            "migrating",
            &to.cli(&["cluster", "myid"]),
        ]);
        let (ip, port) = (to.address.ip().to_string(), to.address.port().to_string());
        let moved = from.cli(&["migrate", &ip, &port, cell, "0", "5000"]);
        assert!(["OK", "NOKEY"].contains(&moved.as_str()), "{moved}");
    }

    /// Ends the move of the slot. The old owner then answers `MOVED`.
    pub fn end_move(&self, cell: &str, from: usize, to: usize) {
        let (slot, id) = (self.slot(cell), self.nodes[to].cli(&["cluster", "myid"]));
        for node in [to, from] {
            self.nodes[node].order(&["cluster", "setslot", &slot, "node", &id]);
        }
    }
}

fn node() -> RedisServer {
    let address = free_place();
    let config = format!(
        "cluster-enabled yes\ncluster-node-timeout 1000\ncluster-announce-ip {}\ncluster-port {}\n",
        address.ip(),
        another_port(address)
    );
    RedisServer::start_as(Role::Server, address, &config)
}

impl RedisServer {
    fn meet(&self, other: &Self) {
        let config = other.cli(&["config", "get", "cluster-port"]);
        let bus = config.lines().last().expect("a port").to_owned();
        let (ip, port) = (
            other.address.ip().to_string(),
            other.address.port().to_string(),
        );
        self.order(&["cluster", "meet", &ip, &port, &bus]);
    }

    fn wait_for_cluster(&self, nodes: u32) {
        let wanted = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_ok:{SLOTS}"),
            format!("cluster_size:{nodes}"),
        ];
        wait_for("the cluster is whole", || {
            let info = self.cli(&["cluster", "info"]);
            let said: Vec<&str> = info.lines().map(str::trim_end).collect();
            wanted.iter().all(|line| said.contains(&line.as_str()))
        });
    }
}
