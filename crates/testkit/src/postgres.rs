//! A real `PostgreSQL` server for tests.
//!
//! The server keeps its address and its data when it is killed and started again. It stops when it
//! is dropped, or with the test process. The tests operate it with `psql`, as an operator would.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{Server, free_place, tool};
use super::redis::certify;

/// Longest wait for the server to accept connections.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running server.
pub struct PostgresServer {
    /// The address for clients.
    pub address: SocketAddr,
    process: Option<Server>,
    folder: tempfile::TempDir,
}

impl PostgresServer {
    /// Creates a cluster of databases and starts its server. `settings` are lines of
    /// `postgresql.conf`.
    pub fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_place();
        let (ip, port) = (address.ip(), address.port());
        certify(folder.path(), &ip.to_string());
        give_away(folder.path());
        let data = folder.path().join("data");
        // A killed process loses nothing that it wrote, so no write needs an fsync here.
        let made = as_user(&server_tool("initdb"))
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=politely",
                "--encoding=UTF8",
            ])
            .arg("--pgdata")
            .arg(&data)
            .output()
            .expect("initdb runs");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb: {said}");
        let configured = format!(
            "listen_addresses = '{ip}'\nport = {port}\nunix_socket_directories = ''\nfsync = off\nssl_cert_file = '../cert.pem'\nssl_key_file = '../key.pem'\n{settings}\n"
        );
        fs::write(data.join("postgresql.auto.conf"), configured).expect("the folder is writable");
        let mut server = Self {
            address,
            process: None,
            folder,
        };
        server.start_again();
        server
    }

    /// Starts the server with the data that it had.
    pub fn start_again(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // The processes of a killed server still hold its memory for a moment.
        while !self.tries_to_start() {
            assert!(
                Instant::now() < deadline,
                "{}",
                self.process.as_ref().expect("it ran").talk()
            );
        }
    }

    fn tries_to_start(&mut self) -> bool {
        self.process = None;
        let program = as_user(&server_tool("postgres"));
        let args = program.get_args().map(ToOwned::to_owned);
        let data = self.folder.path().join("data").into_os_string();
        let args: Vec<_> = args.chain(["-D".into(), data]).collect();
        let program = Path::new(program.get_program());
        let mut process = Server::start("postgres", self.folder.path(), program, args);
        let is_ready = loop {
            if process.ended().is_some() {
                break false;
            }
            if process.talk().contains("ready to accept connections") {
                break true;
            }
            thread::sleep(Duration::from_millis(10));
        };
        self.process = Some(process);
        is_ready
    }

    /// Kills the server with SIGKILL. The processes of its connections end by themselves.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Carries out a command as the administrator, and returns its first column.
    pub fn order(&self, sql: &str) -> String {
        let out = Command::new(tool("psql"))
            .args([
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--set=ON_ERROR_STOP=1",
            ])
            .args(["--command", sql, &self.url()])
            .output()
            .expect("psql runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    /// Returns the address in the form of `--store`.
    pub fn url(&self) -> String {
        self.url_of("politely")
    }

    /// Returns the address for a user, in the form of `--store`.
    pub fn url_of(&self, login: &str) -> String {
        format!("postgres://{login}@{}/postgres", self.address)
    }

    /// Returns the file with the server's certificate.
    pub fn certificate(&self) -> String {
        self.folder.path().join("cert.pem").display().to_string()
    }
}

/// Returns a program of the server. Debian keeps those of each version in a folder of their own.
pub fn server_tool(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions
        .flatten()
        .map(|version| version.path().join("bin").join(name));
    let mut found: Vec<_> = programs.filter(|program| program.is_file()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| tool(name))
}

/// The server refuses to run as root.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    id.stdout.trim_ascii() == b"0"
}

/// Returns the command of a program that runs as an ordinary user.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new(tool("setpriv"));
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(program).stdin(Stdio::null());
    command
}

/// Gives a folder to the user that the server runs as.
fn give_away(folder: &Path) {
    if is_root() {
        let given = Command::new("chown")
            .args(["-R", "postgres:postgres"])
            .arg(folder)
            .status();
        assert!(
            given.expect("chown runs").success(),
            "chown {}",
            folder.display()
        );
    }
}
