//! The policy and the tokens of `serve` are read again at SIGHUP, and the policy when its file
//! changes.

use std::path::{Path, PathBuf};

use politely_server::{Coordinator, PolicyRead, PolicyReads, PolicyRefused, Reload};

use super::{LOOK_EVERY, tokens};
use crate::exit::Wrong;
use crate::log;

/// Reads the tokens and the policy again at each SIGHUP, and the policy when its file changes. The
/// handler is installed when this returns. Without it the signal would end the process.
pub(super) fn reloads(
    file: Option<PathBuf>,
    reload: Reload,
    policy: Option<(PolicyReads, Option<Stamp>)>,
    coordinator: Coordinator,
) -> Result<impl Future<Output = ()>, Wrong> {
    let hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
    let mut hangups = hangups.map_err(|why| Wrong(format!("cannot catch SIGHUP: {why}")))?;
    Ok(async move {
        let (mut policy, mut seen) =
            policy.map_or((None, None), |(reads, seen)| (Some(reads), seen));
        let mut cause = None;
        loop {
            let is_hangup = match tokio::time::timeout(LOOK_EVERY, hangups.recv()).await {
                Ok(Some(())) => true,
                Ok(None) => return,
                Err(_elapsed) => false,
            };
            if let Some(reads) = policy.take() {
                let now = stamp(reads.file());
                if is_hangup {
                    cause = Some("SIGHUP");
                } else if now != seen {
                    cause = cause.or(Some("change"));
                }
                seen = now;
                policy = match cause {
                    None => Some(reads),
                    Some(why) => {
                        let (reads, is_settled) = reload_policy(reads, &coordinator, why).await;
                        cause = cause.filter(|_| !is_settled);
                        reads
                    }
                };
            }
            if is_hangup {
                reload_tokens(file.as_deref(), &reload);
            }
        }
    })
}

/// The marks of a file that a write or a replacement changes: the time of its change, which no tool
/// sets back, its length, and its number.
pub(super) type Stamp = ((i64, i64), u64, u64);

pub(super) fn stamp(file: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let known = std::fs::metadata(file).ok()?;
    let changed = (known.ctime(), known.ctime_nsec());
    Some((changed, known.len(), known.ino()))
}

/// Reads the policy again, and logs what came of it. Returns `false` if it has to be read once
/// more.
async fn reload_policy(
    mut reads: PolicyReads,
    coordinator: &Coordinator,
    cause: &str,
) -> (Option<PolicyReads>, bool) {
    let coordinator = coordinator.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let read = coordinator.reload_policy(&mut reads);
        (reads, read)
    });
    let Ok((reads, read)) = reading.await else {
        return (None, true);
    };
    let told = match read {
        PolicyRead::Unsettled => return (Some(reads), false),
        PolicyRead::Unchanged(rules) | PolicyRead::Applied(rules) => {
            format!("{rules} rules of {} are in force", reads.file().display())
        }
        PolicyRead::Kept(why) => {
            let why = policy_words(reads.file(), &why);
            format!("{why}; the policy from before stays in force")
        }
    };
    log::say(&format!("politely: {cause}: {told}"));
    (Some(reads), true)
}

fn reload_tokens(file: Option<&Path>, reload: &Reload) {
    let told = match file {
        None => "SIGHUP: no token file is named, nothing changed".to_owned(),
        Some(path) => match tokens(Some(path)) {
            Ok(Some(tokens)) => {
                reload.replace(tokens);
                format!("SIGHUP: the tokens of {} are in force", path.display())
            }
            Ok(None) => return,
            Err(Wrong(why)) => {
                format!("SIGHUP: {why}; the tokens from before stay in force")
            }
        },
    };
    log::say(&format!("politely: {told}"));
}

/// Returns why a policy is refused, with its place.
pub(super) fn policy_words(file: &Path, why: &PolicyRefused) -> String {
    match why {
        PolicyRefused::Wrong(wrong) => {
            format!("{}:{}: {}", file.display(), wrong.line(), wrong.why())
        }
        PolicyRefused::Empty => {
            format!(
                "{}: {why}; if that is meant, add --allow-empty-policy",
                file.display()
            )
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_place_shows_though_size_and_time_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, "5/h").unwrap();
        let written = std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = stamp(&file);
        let is_seen = (0..10_000).any(|_| {
            std::fs::write(&file, "7/h").unwrap();
            let open = std::fs::File::options().write(true).open(&file).unwrap();
            open.set_modified(written).unwrap();
            stamp(&file) != before
        });
        assert!(is_seen);
    }
}
