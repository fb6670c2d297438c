//! A real `ZooKeeper` ensemble for tests: three server processes on loopback addresses.
//!
//! Each server keeps its address and its data when it is killed and started again. All servers stop
//! when the ensemble is dropped, or with the test process.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{Server, demand, free_place, tool};

/// Longest wait for a condition. It is longer than an election takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Debian's package `zookeeper` installs it. Its manifest names all other jars.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The largest request that these servers accept, in bytes. The default is about 1 MB.
const MAX_BYTES: u32 = 4_000_000;
/// Lets one ensemble run at a time, because two would slow down each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Three servers.
pub struct Ensemble {
    /// The servers, in the order of their numbers.
    pub members: Vec<Member>,
    _alone: MutexGuard<'static, ()>,
}

/// One server.
pub struct Member {
    /// The address for clients.
    pub address: SocketAddr,
    process: Option<Server>,
    folder: tempfile::TempDir,
}

impl Ensemble {
    /// Starts the servers and waits until they have a leader.
    pub fn start() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        demand(Path::new(JAR));
        let addresses: Vec<_> = (0..3).map(|_| free_place()).collect();
        let mut peers = String::new();
        for (number, address) in addresses.iter().enumerate() {
            let (ip, [quorum, election]) = (address.ip(), two_ports(*address));
            writeln!(peers, "server.{}={ip}:{quorum}:{election}", number + 1).expect("memory");
        }
        let members = addresses.into_iter().enumerate();
        let mut ensemble = Self {
            members: members
                .map(|(number, address)| Member::configure(number + 1, address, &peers))
                .collect(),
            _alone: alone,
        };
        for member in &mut ensemble.members {
            member.start_again();
        }
        ensemble.wait_for_members(3);
        ensemble
    }

    /// Returns the URL of all servers, with a chroot.
    pub fn url(&self, chroot: &str) -> String {
        format!("zookeeper://{}{chroot}", self.servers())
    }

    /// Returns the URL for cells of more than 1 MB.
    pub fn url_for_large_cells(&self, chroot: &str) -> String {
        format!("{}?max_bytes={MAX_BYTES}", self.url(chroot))
    }

    /// Returns the addresses of all servers, separated by commas.
    pub fn servers(&self) -> String {
        let addresses = self.members.iter().map(|member| member.address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Returns the number of the leader.
    pub fn leader(&self) -> usize {
        let is_leader = |member: &Member| member.mode().as_deref() == Some("leader");
        let leader = self.members.iter().position(is_leader);
        leader.expect("the ensemble has a leader")
    }

    /// Waits until `count` servers serve, one of them as the leader.
    pub fn wait_for_members(&self, count: usize) {
        wait_for("the servers have a quorum", || {
            let modes: Vec<_> = self.members.iter().filter_map(Member::mode).collect();
            modes.len() == count && modes.iter().any(|mode| mode == "leader")
        });
    }
}

impl Member {
    fn configure(number: usize, address: SocketAddr, peers: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (ip, port, dir) = (address.ip(), address.port(), folder.path().display());
        let config = format!(
            "tickTime=500\ninitLimit=40\nsyncLimit=10\ndataDir={dir}\nclientPort={port}\nclientPortAddress={ip}\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,cons\n{peers}"
        );
        fs::write(folder.path().join("zoo.cfg"), config).expect("the folder is writable");
        fs::write(folder.path().join("myid"), number.to_string()).expect("the folder is writable");
        Self {
            address,
            process: None,
            folder,
        }
    }

    /// Starts the server with the data that it had.
    pub fn start_again(&mut self) {
        let config = self.folder.path().join("zoo.cfg").display().to_string();
        let max_bytes = format!("-Djute.maxbuffer={MAX_BYTES}");
        // A killed process loses nothing that it wrote, so no write needs an fsync.
        let args = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",
            &max_bytes,
            "-cp",
            JAR,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &config,
        ];
        self.process = None;
        self.process = Some(Server::start(
            "zookeeper",
            self.folder.path(),
            &tool("java"),
            args,
        ));
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Suspends the server: it keeps its connections and does not answer.
    pub fn freeze(&self) {
        self.process.as_ref().expect("it runs").freeze();
    }

    /// Continues the server after [`Member::freeze`].
    pub fn thaw(&self) {
        self.process.as_ref().expect("it runs").thaw();
    }

    /// Returns `leader` or `follower`, or `None` if the server does not serve.
    fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr")?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned)
    }

    /// Returns the answer to an operator's four-letter command.
    pub fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(command.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

/// Returns two further free ports of the same address.
fn two_ports(address: SocketAddr) -> [u16; 2] {
    let bind = |()| TcpListener::bind((address.ip(), 0)).expect("a free loopback port");
    // Both are bound at once, so they differ.
    let listeners = [(), ()].map(bind);
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

/// Polls until `is_so` returns true.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
