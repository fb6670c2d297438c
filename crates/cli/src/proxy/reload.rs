//! SIGHUP: the policy and the tokens are read again, as `politely serve` does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::forward::Proxy;
use crate::config::Settings;
use crate::exit::Wrong;
use crate::fetch::{labelled, read_some};
use crate::{log, serve};

/// The files that can change while the proxy runs.
pub(super) struct Files {
    pub(super) policy: Option<PathBuf>,
    pub(super) tokens: Option<PathBuf>,
}

/// Reads the files again at each SIGHUP. A file that is wrong changes nothing. The handler is
/// installed when this returns. Without it the signal would end the process.
pub(super) fn at_hangups(
    files: Files,
    settings: Settings,
    proxy: Arc<Proxy>,
) -> Result<impl Future<Output = ()>, Wrong> {
    let hangups = signal(SignalKind::hangup());
    let mut hangups = hangups.map_err(|why| Wrong(format!("cannot catch SIGHUP: {why}")))?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            if let Some(file) = &files.policy {
                let book = read_some(file).and_then(|book| labelled(book, &settings));
                tell(file, book.map(|book| proxy.limiter.set_policy(book)));
            }
            if let Some(file) = &files.tokens {
                let tokens = serve::tokens(Some(file));
                let put = |tokens| proxy.access.replace(tokens);
                tell(file, tokens.map(|tokens| tokens.map_or((), put)));
            }
        }
    })
}

fn tell(file: &Path, read: Result<(), Wrong>) {
    let told = match read {
        Ok(()) => format!("{} is in force", file.display()),
        Err(Wrong(why)) => format!("{why}; what was read before stays in force"),
    };
    log::say(&format!("politely: SIGHUP: {told}"));
}
