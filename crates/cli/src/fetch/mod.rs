//! `politely fetch`: fetches every URL, each host at the rate it really allows.
//!
//! | file | its part |
//! | --- | --- |
//! | `input`, `ingest`, `spool` | read URLs and queue them on disk |
//! | `frontier`, `lane`, `pending` | choose the next request |
//! | `retry`, `outage` | decide what follows a request that failed |
//! | `limits` | asks for permits |
//! | `engine`, `worker`, `client`, `ways`, `connection`, `cookies`, `body` | send and read |
//! | `robots` | obeys each origin's robots.txt |
//! | `output`, `journal`, `sent`, `recover`, `store`, `save` | write results and stored state |
//! | `progress`, `summary`, `talk`, `failures` | tell the user about the run |
//! | `trace` | sends spans and numbers to a collector |

mod body;
mod client;
mod connection;
mod cookies;
mod engine;
mod failures;
mod frontier;
mod ingest;
mod input;
mod journal;
mod lane;
mod limits;
mod outage;
mod output;
mod pending;
mod progress;
mod recover;
mod retry;
mod robots;
mod save;
mod sent;
mod spool;
mod store;
mod summary;
mod talk;
mod trace;
mod unexpected;
mod ways;
mod worker;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use politely_otlp::Collector;

use crate::args::FetchArgs;
use crate::config::{Settings, SummaryForm};
use crate::exit::{Exit, Wrong, make_folder};

use engine::{Engine, Parts};
use ingest::{Ingest, Ingested};
pub(crate) use input::{Sources, without_login};
use journal::{Finished, Journal};
use output::Output;
use sent::{Known, SentLog};
use store::Store;

/// The content of a state folder: the input, the URLs of it that are finished, and the learned
/// state.
const SPOOL: &str = "urls.txt";
const JOURNAL: &str = "done.log";
const STORE: &str = "politely.redb";
const SENT: &str = "sent.log";

/// Runs `politely fetch` with the arguments of the command line.
pub(crate) fn run(args: FetchArgs) -> Result<Exit, Wrong> {
    let settings = Settings::layered(args.config.as_deref(), args.knobs)?;
    if args.urls.iter().any(|given| input::is_list(given)) {
        crate::log::say("hint: a list of URLs goes to --input FILE");
    }
    let sources = Sources::open(&args.urls, args.input.as_deref())?;
    let collector = args.otlp.collector()?;
    let fetched = fetch(settings, sources, Names::default(), collector.clone())?;
    if let Some(collector) = collector {
        collector.close();
    }
    Ok(fetched.exit)
}

/// The result of a run.
pub(crate) struct Fetched {
    pub(crate) exit: Exit,
    /// The keys at the end.
    pub(crate) keys: Vec<KeyEnd>,
}

/// A key at the end of a run.
pub(crate) struct KeyEnd {
    pub(crate) name: String,
    /// The rate in requests per second.
    pub(crate) rate: f64,
    /// Why the rate is not higher.
    pub(crate) held_back_by: String,
}

/// Names to show in place of the names of hosts.
pub(crate) type Names = HashMap<String, String>;

/// Fetches the URLs of `sources`.
pub(crate) fn fetch(
    settings: Settings,
    mut sources: Sources,
    names: Names,
    collector: Option<Collector>,
) -> Result<Fetched, Wrong> {
    let resumable = settings
        .state
        .as_deref()
        .is_some_and(|dir| dir.join(SPOOL).exists());
    if sources.is_empty() && !resumable {
        if std::io::stdin().is_terminal() {
            return Err(Wrong(
                "no URLs: give some, or --input FILE, or pipe them in".to_owned(),
            ));
        }
        sources = Sources::open(&["-".to_owned()], None)?;
    }
    let limits = limits::Limits::new(&settings)?.traced_by(collector);
    let clients = client::Clients::new(&settings, limits.per_host())?;
    if let Some(dir) = &settings.save {
        make_folder(dir)?;
    }
    let State {
        store,
        sent,
        known,
        journal,
        finished,
        spool,
        writer,
        complete,
    } = State::open(settings.state.as_deref(), &sources)?;
    if let Some(path) = &settings.output {
        spares(path, &sources, settings.state.as_deref())?;
    }
    let output = output_of(&settings, journal.is_some().then_some(&finished))?;
    let output = match journal {
        Some(journal) => output.journaled(journal),
        None => output,
    };
    let talk = talk::Talk::default();
    if finished.len() > 0 {
        let (fetched, failed) = (finished.fetched, finished.failed);
        talk.say(&format!(
            "resuming: {fetched} fetched and {failed} failed before"
        ));
    }
    let earlier = (finished.fetched, finished.failed);
    let policy = retry::policy(&settings);
    let engine = Arc::new(Engine::new(Parts {
        settings,
        limits,
        clients,
        policy,
        spool,
        output,
        store,
        sent,
        talk,
        names,
    }));
    engine.recover(known);
    let ingest = Ingest {
        sources,
        writer,
        finished,
        complete,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build()
        .map_err(|why| Wrong(format!("no runtime: {why}")))?;
    runtime.block_on(engine.limits.greet())?;
    let exit = runtime.block_on(drive(Arc::clone(&engine), ingest, earlier));
    // A lookup or a read of standard input may still block a thread. Nothing depends on it any
    // more.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let shared = engine.lock();
    let lanes = shared.frontier.lanes().iter();
    let keys = lanes.filter_map(|lane| Some(&lane.keys.first()?[0]));
    let ends = keys.filter_map(|key| {
        Some(KeyEnd {
            name: key.as_str().to_owned(),
            rate: engine.limits.rate(key)?,
            held_back_by: engine.limits.held_back_by(key),
        })
    });
    let keys = ends.collect();
    Ok(Fetched { exit, keys })
}

/// Returns the number of threads that send and receive: half of the cores.
///
/// Tasks are so short that a second thread mostly wakes and waits for the first. The measurement
/// fetched from an nginx on the same two cores: one thread was faster than two in each of four
/// rounds, by 2 to 16 %. A page of 2 KB costs about 14 us.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

async fn drive(engine: Arc<Engine>, ingest: Ingest, earlier: (u64, u64)) -> Exit {
    let began = Instant::now();
    let reading = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || ingest.run(&engine))
    };
    let keeping = tokio::spawn(Arc::clone(&engine).keep_up());
    let showing = tokio::spawn(progress::show(Arc::clone(&engine), earlier));
    let listening = tokio::spawn(listen(Arc::clone(&engine)));
    let heeding = tokio::spawn(Arc::clone(&engine).heed());
    engine.run().await;
    heeding.abort();
    engine.limits.settle().await;
    listening.abort();
    showing.abort();
    keeping.abort();
    let left = engine.settle_set_aside() + engine.lock().frontier.waiting();
    engine.keep();
    // After an interrupt, a reader that still waits for input is not joined.
    let ingested = if reading.is_finished() || !engine.is_stopping() {
        reading.join().unwrap_or(Ingested {
            malformed: 0,
            cut: true,
        })
    } else {
        Ingested {
            malformed: 0,
            cut: true,
        }
    };
    let end = summary::End {
        seconds: began.elapsed().as_secs_f64(),
        left,
        ingested,
        earlier,
    };
    end.tell(&engine)
}

/// Stops the run after Ctrl-C, SIGTERM or SIGHUP, and lets requests in flight finish. A second
/// signal ends the process at once.
async fn listen(engine: Arc<Engine>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    // Under `nohup` the signal stays ignored.
    let mut hangup = if ignores_hangup() {
        None
    } else {
        signal(SignalKind::hangup()).ok()
    };
    let mut told = async || {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
    };
    told().await;
    let in_flight = engine.lock().frontier.in_flight();
    engine.talk.say(&format!(
        "interrupted: finishing {in_flight} in flight; Ctrl-C again stops at once"
    ));
    engine.stop();
    told().await;
    std::process::exit(Exit::SomeFailed as i32);
}

/// Returns whether this process was started with SIGHUP ignored, or `false` if the system does not
/// tell.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// The stores of `--state`, or their stand-ins.
struct State {
    store: Option<Store>,
    sent: Option<SentLog>,
    /// Requests and states in `sent` that `store` may not hold.
    known: HashMap<String, Known>,
    journal: Option<Journal>,
    finished: Finished,
    spool: spool::Spool,
    writer: spool::SpoolWriter,
    complete: bool,
}

impl State {
    fn open(dir: Option<&Path>, sources: &Sources) -> Result<Self, Wrong> {
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

/// Checks that the results overwrite nothing that the run reads or keeps.
fn spares(output: &Path, sources: &Sources, state: Option<&Path>) -> Result<(), Wrong> {
    let of_state = |dir: &Path| {
        let kept = [SPOOL, JOURNAL, STORE, SENT].map(|name| dir.join(name));
        kept.iter().any(|kept| input::is_same_file(kept, output))
    };
    let what = if sources.reads(output) {
        "the input"
    } else if state.is_some_and(of_state) {
        "a file of the state folder"
    } else {
        return Ok(());
    };
    let output = output.display();
    Err(Wrong(format!("--output {output}: is {what}")))
}

fn output_of(settings: &Settings, resumed: Option<&Finished>) -> Result<Output, Wrong> {
    match &settings.output {
        Some(path) if path.as_os_str() == "-" => Ok(Output::stdout()),
        Some(path) => Output::file(path, resumed),
        // Result lines and a JSON summary on one stream could not be told apart.
        None if settings.summary == SummaryForm::Json => Ok(Output::nowhere()),
        None => Ok(Output::stdout()),
    }
}
