//! Other limiters that share one key on a redis-server.
//!
//! The Lua script is the shortest that paces one key. It uses the server's clock and one hash, with
//! no leases, no learning and no reports. It is called once per permit, by the same number of
//! callers. One run uses eight connections with pipelining, and one run uses one connection per
//! caller, like a client without pipelining.
//!
//! Bottleneck (`peers/bottleneck`) also acquires and gives back, with three scripts per job. It
//! runs in one process per core, with the same total number of limiters and callers.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redis::aio::MultiplexedConnection;

use super::one_key::{COORDINATORS, ROUND, TASKS};
use politely_testkit::redis::RedisServer;

const SCRIPT: &str = "local t=redis.call('TIME') local now=t[1]*1000000+t[2]
local s=redis.call('HMGET',KEYS[1],'tat') local tat=math.max(tonumber(s[1] or 0),now)
redis.call('HSET',KEYS[1],'tat',tat+ARGV[1]) return tat-now";

pub(super) struct Lua {
    connections: Vec<MultiplexedConnection>,
    callers_each: usize,
}

impl Lua {
    pub(super) async fn new(server: &RedisServer, connections: usize, callers_each: usize) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut all = Vec::new();
        for _ in 0..connections {
            let connection = client.get_multiplexed_async_connection().await;
            all.push(connection.expect("a server"));
        }
        Self {
            connections: all,
            callers_each,
        }
    }

    pub(super) async fn round(&self) -> f64 {
        let permits = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for connection in self
            .connections
            .iter()
            .flat_map(|of| vec![of; self.callers_each])
        {
            let (mut connection, permits) = (connection.clone(), Arc::clone(&permits));
            tasks.spawn(async move {
                let script = redis::Script::new(SCRIPT);
                while began.elapsed() < ROUND {
                    let mut call = script.key("bucket");
                    let wait: Result<i64, _> = call.arg(1).invoke_async(&mut connection).await;
                    permits.fetch_add(u64::from(wait.is_ok()), Ordering::Relaxed);
                }
            });
        }
        tasks.join_all().await;
        permits.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
    }
}

pub(super) struct Bottleneck {
    server: SocketAddr,
}

impl Bottleneck {
    pub(super) const fn new(server: SocketAddr) -> Self {
        Self { server }
    }

    pub(super) fn round(&self) -> f64 {
        let processes = std::thread::available_parallelism().map_or(1, usize::from);
        let mut all: Vec<_> = (0..processes.min(COORDINATORS))
            .map(|_| self.start(COORDINATORS / processes))
            .collect();
        for (_, talk) in &mut all {
            assert_eq!(line(talk), "ready");
        }
        for (process, _) in &mut all {
            let stdin = process.stdin.as_mut().expect("a pipe");
            stdin.write_all(b"go\n").expect("it listens");
        }
        let permits = |(mut process, mut talk): (Child, _)| {
            let permits: u64 = line(&mut talk).parse().expect("a number");
            process.wait().expect("it ends");
            permits
        };
        all.into_iter().map(permits).sum::<u64>() as f64 / ROUND.as_secs_f64()
    }

    fn start(&self, limiters: usize) -> (Child, BufReader<ChildStdout>) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/bottleneck");
        let numbers = [limiters, TASKS, ROUND.as_secs() as usize];
        let mut process = Command::new("node")
            .current_dir(folder)
            .arg("limiters.js")
            .args([self.server.ip().to_string(), self.server.port().to_string()])
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node: run scripts/setup");
        let talk = BufReader::new(process.stdout.take().expect("a pipe"));
        (process, talk)
    }
}

fn line(talk: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    talk.read_line(&mut line).expect("it talks");
    line.trim_end().to_owned()
}
