//! `politely lock`: runs a command while a lock on a key is held.

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use politely_api::client::{Client, ClientLock, LockFailure, LockWanted};
use politely_api::wire::{LockMode, SESSION_TTL_MAX_MS, SESSION_TTL_MIN_MS};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::LockArgs;
use crate::exit::{Wrong, io_words};
use crate::fault::{Fault, failed, reach};
use crate::log::say;

/// The exit code if the lock was lost while the command ran.
const LOST: u8 = 121;
/// The exit code if the lock was not free in time.
const NOT_FREE: u8 = 122;
/// The exit codes of shells for a command that cannot be run, and for one that was not found.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The exit code of a command that signal N ended is this number plus N.
const SIGNALLED: i32 = 128;
/// The time for the command to end after the lock was lost. Then it is killed.
const END: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &LockArgs) -> Result<ExitCode, Wrong> {
    let ttl_ms = args.ttl.0.as_millis();
    if !(u128::from(SESSION_TTL_MIN_MS)..=u128::from(SESSION_TTL_MAX_MS)).contains(&ttl_ms) {
        return Err(Wrong("--ttl: must be from 1s to 1h".to_owned()));
    }
    let (client, runtime) = reach(&args.to)?;
    runtime.block_on(locked(args, &client))
}

async fn locked(args: &LockArgs, client: &Client) -> Result<ExitCode, Wrong> {
    let wanted = LockWanted {
        client: format!("lock-{}", std::process::id()),
        key: args.key.clone(),
        max: args.max,
        mode: if args.exclusive {
            LockMode::Exclusive
        } else {
            LockMode::Shared
        },
        ttl: args.ttl.0,
        wait: args.wait,
        id: "1".to_owned(),
    };
    let lock = match client.lock(&wanted).await {
        Ok(lock) => lock,
        Err(why @ LockFailure::TimedOut { .. }) => {
            say(&format!("{}: {why}", args.key));
            return Ok(ExitCode::from(NOT_FREE));
        }
        Err(LockFailure::Call(why)) => {
            return Err(failed(&args.to.coordinator, why));
        }
    };
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Wrong("no command".to_owned()));
    };
    // The handlers are installed before the command starts, so that no signal is lost.
    let signals = signals().map_err(|why| Wrong(format!("no signals: {why}")))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("POLITELY_FENCING", lock.fencing().to_string())
        .env("POLITELY_KEY", &args.key);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(why) => {
            say(&format!("error: {}: {}", program.display(), io_words(&why)));
            lock.release().await;
            let is_missing = why.kind() == io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_missing {
                NOT_FOUND
            } else {
                CANNOT_RUN
            }));
        }
    };
    attend(&args.key, lock, child, signals).await
}

/// Waits until the command has ended, and renews the lock meanwhile.
async fn attend(
    key: &str,
    mut lock: ClientLock,
    mut child: Child,
    mut signals: mpsc::Receiver<Signal>,
) -> Result<ExitCode, Wrong> {
    let failed = |why: io::Error| Wrong(format!("cannot wait for the command: {why}"));
    let lost = {
        let keep = lock.keep();
        tokio::pin!(keep);
        loop {
            tokio::select! {
                ended = child.wait() => break Ok(ended.map_err(failed)?),
                Some(number) = signals.recv() => pass_on(&child, number),
                why = &mut keep => break Err(why),
            }
        }
    };
    match lost {
        Ok(ended) => {
            lock.release().await;
            Ok(code(ended))
        }
        Err(why) => {
            let why = Fault::from(why);
            say(&format!(
                "the lock on {key} is lost: {why}; ending the command"
            ));
            pass_on(&child, Signal::TERM);
            if tokio::time::timeout(END, child.wait()).await.is_err() {
                child.kill().await.map_err(failed)?;
            }
            Ok(ExitCode::from(LOST))
        }
    }
}

/// Receives the signals that are passed on.
fn signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (tell, told) = mpsc::channel(16);
    // A terminal sends Ctrl-C and Ctrl-\ to the command itself.
    let is_passed_on = !io::stdin().is_terminal();
    for (kind, number, passes) in [
        (SignalKind::terminate(), Signal::TERM, true),
        (SignalKind::hangup(), Signal::HUP, true),
        (SignalKind::user_defined1(), Signal::USR1, true),
        (SignalKind::user_defined2(), Signal::USR2, true),
        (SignalKind::interrupt(), Signal::INT, is_passed_on),
        (SignalKind::quit(), Signal::QUIT, is_passed_on),
    ] {
        let mut signals = signal(kind)?;
        let tell = tell.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if passes {
                    let _ = tell.send(number).await;
                }
            }
        });
    }
    Ok(told)
}

fn pass_on(child: &Child, number: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // An error means that the command has just ended.
        let _ = kill_process(pid, number);
    }
}

fn code(ended: ExitStatus) -> ExitCode {
    let signalled = || ended.signal().map_or(1, |number| SIGNALLED + number);
    let code = ended.code().unwrap_or_else(signalled);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
