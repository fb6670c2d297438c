//! `politely local`: prints the address and the token of this user's own coordinator, and starts it
//! if it does not run.
//!
//! A folder that only the user can read has a file `lock`. It is the standard input of the
//! coordinator, which so holds the lock on it for as long as it lives. After a kill or a restart of
//! the machine the lock is free, and no process id and no old address has to be judged.
//!
//! | file | content |
//! | --- | --- |
//! | `started.json` | the token and the machine; written before the start |
//! | `ready.json` | the address and the process id; written by the coordinator when it listens |
//! | `log` | the messages of the coordinator |
//! | `state/` | its state |

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::args::LocalArgs;
use crate::exit::{Exit, Wrong, io_words, print};

/// The name of the folder. Coordinators of two versions do not share a state.
const FOLDER: &str = concat!("local-", env!("CARGO_PKG_VERSION"));
/// The longest log in bytes. A longer one is emptied.
const LOG_MAX: u64 = 1 << 20;
/// The time for a coordinator to answer. One that ends saves its state before another can start.
const START: Duration = Duration::from_secs(20);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// The time for a running coordinator to answer one call.
const ANSWER: Duration = Duration::from_secs(2);

/// Why a folder has no coordinator.
enum Failure {
    /// The folder cannot be used. Another one may do.
    Folder(String),
    /// The coordinator cannot be started, or does not answer.
    Coordinator(String),
}

pub(crate) fn run(args: &LocalArgs) -> Result<Exit, Wrong> {
    let mut unusable = Vec::new();
    for folder in folders() {
        match coordinator(&folder, args) {
            Ok(running) => {
                print(format!("{running}\n").as_bytes())?;
                return Ok(Exit::AllFetched);
            }
            Err(Failure::Folder(why)) => unusable.push(why),
            Err(Failure::Coordinator(why)) => return Err(Wrong(why)),
        }
    }
    Err(Wrong(format!(
        "no folder for a local coordinator: {}; name another with XDG_CACHE_HOME",
        unusable.join("; ")
    )))
}

/// Returns the folders that may be used, the best first.
fn folders() -> impl Iterator<Item = PathBuf> {
    let named = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let of_user = format!("politely-{}", user());
    let cached = [cache, named("XDG_RUNTIME_DIR")].into_iter().flatten();
    cached
        .map(|dir| dir.join("politely"))
        .chain([std::env::temp_dir().join(of_user)])
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the line about the coordinator in `root`, which this starts if it does not run.
fn coordinator(root: &Path, args: &LocalArgs) -> Result<Value, Failure> {
    let folder = root.join(FOLDER);
    for private in [root, &folder] {
        make_private(private, user()).map_err(Failure::Folder)?;
    }
    let until = Instant::now() + START;
    let mut is_started = false;
    loop {
        let lock = open(&folder.join("lock"), OpenOptions::new().write(true));
        let lock = lock.map_err(Failure::Folder)?;
        match lock.try_lock() {
            Ok(()) if is_started => return Err(Failure::Coordinator(not_started(&folder))),
            Ok(()) => {
                start(&folder, lock, args).map_err(Failure::Coordinator)?;
                is_started = true;
            }
            Err(TryLockError::WouldBlock) => {
                if let Some(running) = running(&folder)? {
                    return Ok(running);
                }
            }
            Err(TryLockError::Error(why)) => {
                return Err(Failure::Folder(words(&folder, &why)));
            }
        }
        if Instant::now() >= until {
            return Err(Failure::Coordinator(format!(
                "the local coordinator of {} does not answer; end it (its process id is in \
                 ready.json there)",
                folder.display()
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// Makes a folder that only `user` can enter, or checks that it is one.
fn make_private(folder: &Path, user: u32) -> Result<(), String> {
    let failed = |why: io::Error| words(folder, &why);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(failed)?;
    // A link in a folder of all users may have been made by another user.
    let found = fs::symlink_metadata(folder).map_err(failed)?;
    if !found.is_dir() || found.uid() != user {
        return Err(format!("{}: belongs to another user", folder.display()));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Opens a file of mode 0600, which is created if it is missing.
fn open(path: &Path, options: &mut OpenOptions) -> Result<File, String> {
    let opened = options.create(true).mode(0o600).open(path);
    opened.map_err(|why| words(path, &why))
}

/// Starts a coordinator that holds `lock`. Its environment is empty, so that it does not depend on
/// the program that is the first to need it.
fn start(folder: &Path, lock: File, args: &LocalArgs) -> Result<(), String> {
    let ready = folder.join("ready.json");
    let _ = fs::remove_file(&ready);
    let token = token()?;
    let started = folder.join("started.json");
    let about = json!({ "token": token, "machine": machine() }).to_string();
    open(&started, OpenOptions::new().write(true).truncate(true))?
        .write_all(about.as_bytes())
        .map_err(|why| words(&started, &why))?;
    let log = open(&folder.join("log"), OpenOptions::new().append(true))?;
    let idle = format!("{}ms", args.exit_when_idle.0.as_millis());
    let program = std::env::current_exe().map_err(|why| io_words(&why))?;
    Command::new(&program)
        .args(["serve", "--bind", "127.0.0.1:0", "--state"])
        .arg(folder.join("state"))
        .arg("--ready-file")
        .arg(ready)
        .args(["--exit-when-idle", &idle])
        .env_clear()
        .env("POLITELY_TOKEN", token)
        .current_dir("/")
        .stdin(lock)
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C in a terminal ends the group of its program.
        .process_group(0)
        .spawn()
        .map_err(|why| words(&program, &why))?;
    Ok(())
}

/// Returns 128 random bits as text.
fn token() -> Result<String, String> {
    let mut bytes = [0; 16];
    let provider = rustls::crypto::ring::default_provider();
    let drawn = provider.secure_random.fill(&mut bytes);
    drawn.map_err(|_| "the system has no randomness".to_owned())?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Returns the line about the coordinator that holds the lock, or `None` if it does not answer.
fn running(folder: &Path) -> Result<Option<Value>, Failure> {
    // In this order: a start removes the first file before it writes the second one.
    let [ready, started] = ["ready.json", "started.json"].map(|name| {
        let text = fs::read(folder.join(name)).unwrap_or_default();
        serde_json::from_slice::<Value>(&text).unwrap_or_default()
    });
    let (Some(address), Some(token)) = (ready["address"].as_str(), started["token"].as_str())
    else {
        return Ok(None);
    };
    if started["machine"] != machine() {
        return Err(Failure::Folder(format!(
            "{}: in use on another machine or in another container",
            folder.display()
        )));
    }
    if !answers(address, token).unwrap_or(false) {
        return Ok(None);
    }
    shorten(&folder.join("log"));
    Ok(Some(
        json!({ "address": address, "token": token, "pid": ready["pid"] }),
    ))
}

/// Returns the name of this machine's loopback: of its start, and of the network of a container.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), network.display())
}

fn answers(address: &str, token: &str) -> io::Result<bool> {
    let host = address.trim_start_matches("http://");
    let place = host.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&place, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(
        stream,
        "GET /healthz HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )?;
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status)?;
    Ok(status == *b"HTTP/1.1 200")
}

/// Empties a log that is too long. The coordinator appends to it.
fn shorten(log: &Path) {
    if fs::metadata(log).is_ok_and(|found| found.len() > LOG_MAX) {
        let _ = File::create(log);
    }
}

/// Returns the reason why the coordinator ended at its start: its last error.
fn not_started(folder: &Path) -> String {
    let log = folder.join("log");
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let why = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("error: "));
    let why = why.map_or_else(|| format!("see {}", log.display()), str::to_owned);
    format!("the local coordinator did not start: {why}")
}

fn words(path: &Path, why: &io::Error) -> String {
    Wrong::file(path, why).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_user_and_a_link_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("a/b");
        make_private(&ours, user()).unwrap();
        let refused = make_private(&ours, user() + 1).unwrap_err();
        assert!(refused.ends_with("b: belongs to another user"), "{refused}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(make_private(&link, user()).is_err());
    }

    #[test]
    fn an_open_folder_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        make_private(folder.path(), user()).unwrap();
        let mode = fs::metadata(folder.path()).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700);
    }

    #[test]
    fn a_long_log_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for (length, left) in [(LOG_MAX, LOG_MAX), (LOG_MAX + 1, 0)] {
            File::create(&log).unwrap().set_len(length).unwrap();
            shorten(&log);
            assert_eq!(fs::metadata(&log).unwrap().len(), left);
        }
    }
}
