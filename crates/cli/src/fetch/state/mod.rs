//! The state folder: what a run needs to continue after an interrupt or a kill.
//!
//! | file | its part |
//! | --- | --- |
//! | `urls.txt` | the input, written by [`spool`] |
//! | `done.log` | the URLs that are finished, written by [`journal`] |
//! | `sent.log` | requests and learned states since the last write of the next, written by [`sent`] |
//! | `politely.redb` | learned states and robots.txt, written by [`store`] |

pub(super) mod journal;
mod recover;
pub(super) mod sent;
pub(super) mod store;

use std::collections::HashMap;
use std::path::Path;

use crate::exit::Wrong;
use crate::fetch::input::lines::{Sources, is_same_file};
use crate::fetch::input::spool::{self, Spool, SpoolWriter};
use journal::{Finished, Journal};
use sent::{Known, SentLog};
use store::Store;

const SPOOL: &str = "urls.txt";
const JOURNAL: &str = "done.log";
const STORE: &str = "politely.redb";
const SENT: &str = "sent.log";

/// The stores of `--state`, or their stand-ins.
pub(super) struct State {
    pub(super) store: Option<Store>,
    pub(super) sent: Option<SentLog>,
    /// Requests and states in `sent` that `store` may not hold.
    pub(super) known: HashMap<String, Known>,
    pub(super) journal: Option<Journal>,
    pub(super) finished: Finished,
    pub(super) spool: Spool,
    pub(super) writer: SpoolWriter,
    /// Whether the spool has the whole input.
    pub(super) complete: bool,
}

/// Returns whether `dir` holds the state of an earlier run.
pub(super) fn is_resumable(dir: &Path) -> bool {
    dir.join(SPOOL).exists()
}

/// Returns whether `path` is a file of the state folder `dir`.
pub(super) fn holds(dir: &Path, path: &Path) -> bool {
    let kept = [SPOOL, JOURNAL, STORE, SENT].map(|name| dir.join(name));
    kept.iter().any(|kept| is_same_file(kept, path))
}

impl State {
    /// Opens the state folder `dir`, or makes stand-ins that vanish with the process.
    pub(super) fn open(dir: Option<&Path>, sources: &Sources) -> Result<Self, Wrong> {
        let Some(dir) = dir else {
            let (spool, writer) =
                spool::unnamed().map_err(|why| Wrong::file(&std::env::temp_dir(), &why))?;
            let finished = Finished::default();
            return Ok(Self {
                store: None,
                sent: None,
                known: HashMap::new(),
                journal: None,
                finished,
                spool,
                writer,
                complete: false,
            });
        };
        let urls = dir.join(SPOOL);
        if urls.exists() && !dir.join(STORE).exists() {
            return Err(Wrong(format!(
                "{}: none of a run's state: --state is to name a new folder, or one of an earlier run",
                urls.display()
            )));
        }
        if sources.reads(&urls) {
            return Err(Wrong(format!(
                "{}: the state folder's own copy of the input: leave it out to go on with that run",
                urls.display()
            )));
        }
        let store = Store::open(dir)?;
        let (spool, writer) = spool::at(&urls).map_err(|why| Wrong::file(&urls, &why))?;
        let log = dir.join(JOURNAL);
        let (journal, finished) = Journal::open(&log).map_err(|why| Wrong::file(&log, &why))?;
        let (sent, known) = SentLog::open(dir).map_err(|why| Wrong::file(&dir.join(SENT), &why))?;
        let complete = store
            .input_complete()
            .map_err(|why| Wrong(format!("politely.redb: {why}")))?;
        Ok(Self {
            store: Some(store),
            sent: Some(sent),
            known,
            journal: Some(journal),
            finished,
            spool,
            writer,
            complete,
        })
    }
}
