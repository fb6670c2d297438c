//! Real Redis servers for tests: a single one, a master with Sentinels, a cluster.
//!
//! Each server has its own address and keeps it when it is killed and started again. All servers
//! stop when they are dropped, or with the test process. The tests operate them with `redis-cli`,
//! as an operator would.

mod cluster;
mod sentinel;

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Server, demand, free_place, repository, tool};

pub use cluster::Cluster;
pub use sentinel::Sentineled;

/// Longest wait for a condition. It is longer than a failover takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One server. It keeps nothing on disk unless its configuration says so.
pub struct RedisServer {
    /// The address, which a restart keeps.
    pub address: SocketAddr,
    role: Role,
    process: Option<Server>,
    folder: tempfile::TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    /// A Valkey instead of a Redis.
    Valkey,
    /// A Redis that accepts only TLS, with a self-signed certificate.
    Tls,
    Sentinel,
}

impl RedisServer {
    /// Starts a Redis and waits until it accepts connections. `config` has lines as in
    /// `redis.conf`.
    pub fn start(config: &str) -> Self {
        Self::start_as(Role::Server, free_place(), config)
    }

    /// Starts a Valkey.
    pub fn start_valkey() -> Self {
        Self::start_as(Role::Valkey, free_place(), "")
    }

    /// Starts a Redis that accepts only TLS.
    pub fn start_with_tls(config: &str) -> Self {
        Self::start_as(Role::Tls, free_place(), config)
    }

    fn start_as(role: Role, address: SocketAddr, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (ip, port) = (address.ip(), address.port());
        let dir = folder.path().display();
        // This is Debian's configuration, except for persistence.
        let mut whole = format!("bind {ip}\nport {port}\ndir {dir}\nprotected-mode no\n");
        if role == Role::Tls {
            certify(folder.path(), &ip.to_string());
            writeln!(whole, "port 0\ntls-port {port}\ntls-auth-clients no").expect("memory");
            writeln!(
                whole,
                "tls-cert-file {dir}/cert.pem\ntls-key-file {dir}/key.pem"
            )
            .expect("memory");
        }
        if role != Role::Sentinel {
            writeln!(whole, "save \"\"\nappendonly no\nreplica-announce-ip {ip}").expect("memory");
            // Replication starts without a delay, and the master pings a replica every second.
            whole.push_str("repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n");
        }
        whole.push_str(config);
        fs::write(folder.path().join("redis.conf"), whole).expect("the folder is writable");
        let mut server = Self {
            address,
            role,
            process: None,
            folder,
        };
        server.start_again();
        server
    }

    /// Starts the server again at the same address, with the same configuration and the same files.
    pub fn start_again(&mut self) {
        self.process = None;
        let config = self.folder.path().join("redis.conf");
        let mut args = vec![config.into_os_string()];
        let mut ready = "Ready to accept connections";
        if self.role == Role::Sentinel {
            args.push("--sentinel".into());
            ready = "+monitor";
        }
        let program = if self.role == Role::Valkey {
            let valkey = repository().join(".venv/bin/valkey-server");
            demand(&valkey);
            valkey
        } else {
            tool("redis-server")
        };
        let mut process = Server::start("redis", self.folder.path(), &program, args);
        process.says(ready);
        self.process = Some(process);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Suspends the server: it keeps its connections and does not answer.
    pub fn freeze(&self) {
        self.process.as_ref().expect("it runs").freeze();
    }

    /// Continues a suspended server.
    pub fn thaw(&self) {
        self.process.as_ref().expect("it runs").thaw();
    }

    /// Returns the answer to a command, as `redis-cli` prints it. An error of the server is an
    /// answer too.
    pub fn cli(&self, args: &[&str]) -> String {
        let answered = self.try_cli(args);
        answered.unwrap_or_else(|why| panic!("redis-cli {args:?}: {why}"))
    }

    /// Returns the answer to a command, or an error if the connection failed. A failover closes
    /// connections.
    fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let (ip, port) = (
            self.address.ip().to_string(),
            self.address.port().to_string(),
        );
        let certificate = self.certificate();
        let tls = ["--tls", "--cacert", &certificate];
        let out = Command::new(tool("redis-cli"))
            .args(["-h", &ip, "-p", &port])
            .args(if self.role == Role::Tls {
                &tls[..]
            } else {
                &[]
            })
            .args(args)
            .output()
            .expect("redis-cli runs");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if out.status.success() {
            Ok(said(&out.stdout))
        } else {
            Err(said(&out.stderr))
        }
    }

    /// Runs a command and asserts that the answer is `OK`.
    pub fn order(&self, args: &[&str]) {
        let answer = self.cli(args);
        assert_eq!(answer, "OK", "redis-cli {args:?}");
    }

    /// Waits until the answer to `INFO` contains `line`.
    pub fn wait_for_info(&self, line: &str) {
        wait_for(line, || {
            let info = self.try_cli(&["info"]).unwrap_or_default();
            info.lines().any(|said| said.trim_end() == line)
        });
    }

    /// Waits until the replica acknowledges writes. That begins about a second after it is in sync;
    /// until then the master sends it nothing.
    fn wait_for_acknowledgements(&self) {
        wait_for("the replica acknowledges", || {
            let info = self.cli(&["info", "replication"]);
            let replica = info.lines().find(|line| line.starts_with("slave0:"));
            replica.is_some_and(|line| line.contains("state=online") && !line.contains("offset=0,"))
        });
    }

    /// Returns the address in the form of `--store`.
    pub fn url(&self) -> String {
        match self.role {
            Role::Tls => format!("rediss://{}?ca={}", self.address, self.certificate()),
            _ => format!("redis://{}", self.address),
        }
    }

    fn certificate(&self) -> String {
        self.folder.path().join("cert.pem").display().to_string()
    }
}

/// Writes a certificate for `ip` and its key to `cert.pem` and `key.pem`.
pub(super) fn certify(folder: &Path, ip: &str) {
    let names = format!("subjectAltName=IP:{ip}");
    let out = Command::new(tool("openssl"))
        .current_dir(folder)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-days",
            "2",
            "-subj",
            "/CN=engine",
        ])
        .args([
            "-addext",
            &names,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .output()
        .expect("openssl runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Polls until `is_so` returns true.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50)); // Each poll starts a process.
    }
}

/// Returns another free port of the same address.
fn another_port(address: SocketAddr) -> u16 {
    let listener = TcpListener::bind((address.ip(), 0)).expect("a free loopback port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}
