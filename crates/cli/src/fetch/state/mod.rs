//! The state folder: what a run needs to continue after an interrupt or a kill.
//!
//! | file | its part |
//! | --- | --- |
//! | `frontier` | the pages, waiting and finished (see [`Kept`]) |
//! | `once.log` | requests in flight that must not be sent twice, written by [`once`] |
//! | `sent.log` | requests and learned states that the database lacks, written by [`sent`] |
//! | `politely.redb` | learned states, robots.txt and the present run, written by [`store`] |

pub(super) mod once;
mod recover;
pub(super) mod runs;
pub(super) mod sent;
pub(super) mod store;

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use politely::core::key::Key;

use crate::config::{AgainSettings, Wanted};
use crate::exit::Wrong;
use crate::fetch::crawl::again::{Again, Which};
use crate::fetch::crawl::{Crawl, Kept, date};
use crate::fetch::input::lines::is_same_file;
use once::OnceLog;
use runs::RunOfFolder;
use sent::{Known, SentLog};
use store::Store;

const FRONTIER: &str = "frontier";
const STORE: &str = "politely.redb";
const SENT: &str = "sent.log";
const ONCE: &str = "once.log";

/// The stores of `--state`, or their stand-ins.
pub(super) struct State {
    pub(super) store: Option<Store>,
    pub(super) sent: Option<SentLog>,
    pub(super) once: Option<OnceLog>,
    /// Requests and states in `sent` that `store` may not hold.
    pub(super) known: HashMap<String, Known>,
    pub(super) crawl: Crawl,
    /// Pages of the run that earlier processes finished: fetched and failed.
    pub(super) finished: (u64, u64),
    /// The present run of the folder.
    pub(super) run: Option<RunOfFolder>,
    /// Whether an earlier process began the run.
    pub(super) is_resumed: bool,
    /// Whether it read its whole input.
    pub(super) is_complete: bool,
}

/// Returns whether `dir` holds the state of an earlier run.
pub(super) fn is_resumable(dir: &Path) -> bool {
    dir.join(FRONTIER).exists()
}

/// Returns whether `path` is a file of the state folder `dir`.
pub(super) fn holds(dir: &Path, path: &Path) -> bool {
    let kept = [STORE, SENT, ONCE].map(|name| dir.join(name));
    let is_below = |folder: &Path| {
        let (folder, path) = (folder.canonicalize(), path.canonicalize());
        matches!((folder, path), (Ok(folder), Ok(path)) if path.starts_with(&folder))
    };
    kept.iter().any(|kept| is_same_file(kept, path)) || is_below(&dir.join(FRONTIER))
}

/// A state folder as `politely explain` reads it.
pub(super) struct Inspected {
    pub(super) store: Store,
    pub(super) pages: Kept,
    /// The learned state of the key.
    pub(super) state: Option<Vec<u8>>,
}

impl Inspected {
    /// Opens the state folder `dir` to read about `key`. No run may use it meanwhile.
    pub(super) fn open(dir: &Path, key: &Key) -> Result<Self, Wrong> {
        let store = Store::open(dir)?;
        let damaged = |why: redb::Error| Wrong(format!("politely.redb: {why}"));
        let run = store.run().map_err(damaged)?.unwrap_or(RunOfFolder::FIRST);
        let pages = Kept::open(&dir.join(FRONTIER), run.number, None).map_err(Wrong)?;
        let sent = SentLog::open(dir).map_err(|why| Wrong::file(&dir.join(SENT), &why));
        let (_, mut known) = sent?;
        let kept = store.key(key.as_str()).map_err(damaged)?;
        let state = known
            .remove(key.as_str())
            .unwrap_or_default()
            .state_or(kept);
        Ok(Self {
            store,
            pages,
            state,
        })
    }
}

impl State {
    /// Opens the state folder `dir` and begins or continues a run, or makes stand-ins that vanish
    /// with the process.
    pub(super) fn open(dir: Option<&Path>, settings: &AgainSettings) -> Result<Self, Wrong> {
        let Some(dir) = dir else {
            return Ok(Self {
                store: None,
                sent: None,
                once: None,
                known: HashMap::new(),
                crawl: Crawl::vanishing(),
                finished: (0, 0),
                run: None,
                is_resumed: false,
                is_complete: false,
            });
        };
        let is_resumed = is_resumable(dir);
        // Its lock excludes a second process.
        let store = Store::open(dir)?;
        let damaged = |why: redb::Error| Wrong(format!("politely.redb: {why}"));
        let last = store.run().map_err(damaged)?;
        // A folder of an earlier version has pages and no run.
        let last = last.or(is_resumed.then_some(RunOfFolder::FIRST));
        let wanted = &settings.wanted;
        if matches!(wanted, Wanted::Failed(_)) && last.is_none() {
            let dir = dir.display();
            return Err(Wrong(format!(
                "--retry-failed: no run has used the state folder \"{dir}\" yet; leave it out"
            )));
        }
        let run = RunOfFolder::next(last, wanted);
        if last != Some(run) {
            store.set_run(run).map_err(damaged)?;
        }
        let which = match wanted {
            Wanted::None => None,
            Wanted::All { since } => Some(Which::All {
                before: since.map(|age| date(SystemTime::now()).before(age)),
            }),
            Wanted::Failed(failed) => Some(Which::Failed(failed.clone())),
        };
        let again = which.map(|which| Again::new(run.number, which, settings.repeats_posts));
        let pages = Kept::open(&dir.join(FRONTIER), run.number, again).map_err(Wrong)?;
        // A command that fetches nothing again continues all that the folder has.
        let of_run = (*wanted != Wanted::None || !run.has_ended).then_some(run.number);
        let finished = pages.finished(of_run).map_err(Wrong)?;
        let (sent, known) = SentLog::open(dir).map_err(|why| Wrong::file(&dir.join(SENT), &why))?;
        let once = OnceLog::open(dir).map_err(|why| Wrong::file(&dir.join(ONCE), &why))?;
        let is_complete = store.input_complete().map_err(damaged)?;
        Ok(Self {
            store: Some(store),
            sent: Some(sent),
            once: Some(once),
            known,
            crawl: Crawl::Kept(Box::new(pages)),
            finished,
            run: Some(run),
            is_resumed,
            is_complete,
        })
    }
}
