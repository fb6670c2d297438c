//! Server processes: they find their programs and ports, wait until they listen, and never outlive
//! the tests.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a server's start. A loaded machine starts node and Python in a few seconds.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// One server process, which is killed when this value is dropped.
pub struct Server {
    name: &'static str,
    child: Child,
    /// Kills the server if this process ends without dropping it. The watchdog waits for the end of
    /// its input, and only this process holds the other end.
    watchdog: Child,
    talk: PathBuf,
}

impl Server {
    /// Starts `program` in the background. Its output goes to the file `NAME.talk` in `folder`.
    pub fn start<S: AsRef<OsStr>>(
        name: &'static str,
        folder: &Path,
        program: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let talk = folder.join(format!("{name}.talk"));
        let stdout = File::create(&talk).expect("the town's folder is writable");
        let stderr = stdout.try_clone().expect("a file handle");
        let child = Command::new(program)
            .args(args)
            .process_group(0) // Ctrl-C at the terminal must not reach the servers.
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: run scripts/setup", program.display()));
        let watchdog = Command::new("sh")
            .args(["-c", "cat; kill -KILL -$0", &child.id().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        Self {
            name,
            child,
            watchdog,
            talk,
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be waited for")
    }

    /// Returns the whole output.
    pub fn talk(&self) -> String {
        fs::read_to_string(&self.talk).unwrap_or_default()
    }

    /// Suspends the process with SIGSTOP.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Continues the process with SIGCONT.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.signal("-HUP");
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill").success(), "kill {signal} {pid}");
    }

    /// Waits for a line of output that contains `text`, and returns the first one.
    pub fn says(&mut self, text: &str) -> String {
        self.says_one_of(&[text])
    }

    /// Waits for a line of output that contains one of `texts`, and returns the first one.
    pub fn says_one_of(&mut self, texts: &[&str]) -> String {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let talk = fs::read_to_string(&self.talk).unwrap_or_default();
            let whole = talk.rfind('\n').map_or("", |end| &talk[..end]);
            let wanted = |line: &&str| texts.iter().any(|text| line.contains(text));
            if let Some(line) = whole.lines().find(wanted) {
                return line.to_owned();
            }
            self.demand_alive();
            if Instant::now() > deadline {
                self.give_up(&format!("never said {texts:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn demand_alive(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            self.give_up(&format!("ended with {status}"));
        }
    }

    fn give_up(&self, what: &str) -> ! {
        let talk = fs::read_to_string(&self.talk).unwrap_or_default();
        panic!("{} {what}; it said:\n{talk}", self.name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The watchdog is killed first. Once the server has ended, another process may get its id.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until every address accepts a connection. Otherwise it fails with the server's name and
/// output.
pub fn wait_until_ready(servers: &mut [Server], addresses: impl Iterator<Item = SocketAddr>) {
    let deadline = Instant::now() + START_DEADLINE;
    for address in addresses {
        while TcpStream::connect(address).is_err() {
            servers.iter_mut().for_each(Server::demand_alive);
            if Instant::now() > deadline {
                servers[0].give_up(&format!("or another server does not listen at {address}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Otherwise another process that listens at the port on all addresses answered.
    servers.iter_mut().for_each(Server::demand_alive);
}

/// Returns a free port on a loopback address that no other host has, in this town or in a town of
/// another test.
///
/// The address depends on the process id and a counter, and outgoing connections use 127.0.0.1. The
/// port is below those that the system hands out (32768 on), so no program that listens on all
/// addresses, at a port of the system's choice, takes it before the server does.
pub fn free_place() -> SocketAddr {
    static PICKED: AtomicU16 = AtomicU16::new(0);
    let picked = PICKED.fetch_add(1, Ordering::Relaxed);
    let last = 1 + (picked % 254) as u8; // 1 to 254; repeats after 14 towns
    let [.., high, low] = process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | high & 63, low, last);
    let first = (process::id() % 97) as u16 * 100 + picked;
    (0..10_000)
        .map(|next| SocketAddr::from((host, 20_000 + first.wrapping_add(next) % 10_000)))
        .find(|place| TcpListener::bind(place).is_ok())
        .expect("a free loopback port")
}

/// Returns the path of a program. It also looks in the directories where Debian keeps servers.
pub fn tool(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found =
        folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup"))
}

/// Returns the root of the repository. The servers' files and the environments of `scripts/setup`
/// are below it.
pub fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders
        .find(|folder| folder.join("tests/servers").is_dir())
        .expect("the crate is inside the repository")
}

/// Fails the test if `path` does not exist, because `scripts/setup` was not run.
pub(super) fn demand(path: &Path) {
    assert!(
        path.exists(),
        "{} is missing: run scripts/setup",
        path.display()
    );
}
