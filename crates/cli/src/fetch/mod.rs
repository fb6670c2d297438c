//! `politely fetch`: fetches every URL, each host at the rate it really allows.
//!
//! | room | its part |
//! | --- | --- |
//! | `input` | reads URLs into the crawl |
//! | `lanes` | chooses the next request, and detects hosts that serve nothing |
//! | `transport` | sends a request and reads its answer |
//! | `warc` | writes the archive of all requests and answers |
//! | `state` | stores what the run needs to continue after a kill |
//! | `site` | finds the pages that sitemaps, feeds and links name |
//! | `report` | result lines, saved bodies, progress, the summary and messages |
//!
//! The files beside them connect the rooms: `crawl` keeps the pages, `engine` has the workers and
//! the state that they share, `fill` takes pages out of the crawl, `filter` leaves URLs of the
//! input out, `add` adds pages to the crawl, `worker` sends one request, `outgoing` has its parts,
//! `request` is what makes it more than a GET, `defaults` what the settings add to it, `finish`
//! ends a page, `depart` chooses its egress, `retry` decides what follows a request that failed,
//! `unsaved` what follows if this machine is at fault, `limits` asks for permits, `resolve` looks a
//! host up where its address is its key, `rules` applies a policy, `own_machine` and `full_disk`
//! pause the run, `robots` obeys robots.txt of each origin, `trace` sends spans and numbers to a
//! collector, and `explain` reads a state folder for `politely explain`.

mod add;
mod crawl;
mod defaults;
mod depart;
mod engine;
pub(crate) mod explain;
mod fill;
mod filter;
mod finish;
mod fleet;
mod full_disk;
mod input;
mod lanes;
mod last;
mod limits;
mod outgoing;
mod own_machine;
mod refusals;
mod report;
mod request;
mod resolve;
mod retry;
mod robots;
mod robots_answer;
mod rules;
mod site;
mod state;
mod trace;
mod transport;
mod unsaved;
mod warc;
mod worker;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use politely_otlp::Collector;

use crate::args::FetchArgs;
use crate::config::Settings;
use crate::exit::{Exit, Wrong, make_folder};

use crawl::Crawl;
use defaults::Defaults;
use engine::{Engine, Parts};
use filter::Filter;
#[cfg(feature = "proxy")]
pub(crate) use fleet::limiter;
use input::ingest::{Ingest, Ingested};
pub(crate) use input::lines::{Sources, without_login};
use report::form::{Form, LineOfPage};
use report::output::Output;
use report::{progress, summary, talk};
#[cfg(feature = "proxy")]
pub(crate) use retry::{budgets, policy as retry_policy};
#[cfg(feature = "proxy")]
pub(crate) use rules::{labelled, read_some};
use state::State;
use state::runs::RunOfFolder;
use transport::client;
#[cfg(feature = "proxy")]
pub(crate) use transport::{
    resolver::{Connectable, Resolver, connectable},
    words::innermost,
};

/// Runs `politely fetch` with the arguments of the command line.
pub(crate) fn run(args: FetchArgs) -> Result<Exit, Wrong> {
    let secret = crate::config::first_secret(&args.knobs.header);
    let settings = Settings::layered(args.config.as_deref(), args.knobs)?;
    if let Some(name) = secret {
        crate::log::say(&format!(
            "warning: --header {name}: other users see it in the list of processes; use --header @FILE"
        ));
    }
    if args.urls.iter().any(|given| input::lines::is_list(given)) {
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
    let resumable = settings.state.as_deref().is_some_and(state::is_resumable);
    if sources.is_empty() && !resumable && settings.site.sitemaps.is_empty() {
        if std::io::stdin().is_terminal() {
            return Err(Wrong(
                "no URLs: give some, or --input FILE, or pipe them in".to_owned(),
            ));
        }
        sources = Sources::open(&["-".to_owned()], None)?;
    }
    let defaults = Defaults::read(&settings.request)?;
    if settings.connect.is_insecure {
        crate::log::say(
            "warning: --insecure: no certificate is checked, so anyone on the way may answer",
        );
    }
    let filter = Filter::new(&settings.bounds)?;
    let sitemaps = site::given(&settings.site.sitemaps)?;
    let limits = limits::Limits::new(&settings)?.traced_by(collector);
    let clients = client::Clients::new(&settings, limits.per_host())?;
    let clients = clients.reading_bodies(limits.needs_bodies());
    if let Some(dir) = &settings.save {
        make_folder(dir)?;
        report::save::remove_remains(dir);
    }
    let State {
        store,
        sent,
        once,
        known,
        crawl,
        finished: earlier,
        run,
        is_resumed,
        is_complete,
    } = State::open(settings.state.as_deref(), &settings.again)?;
    if let Some(path) = &settings.output {
        spares(path, &sources, settings.state.as_deref())?;
    }
    let output = output_of(&settings, &crawl)?;
    let warc = settings.warc.as_ref();
    let warc = warc
        .map(|warc| warc::Warc::open(warc, &settings))
        .transpose()?;
    let talk = talk::Talk::default();
    tell_run(&talk, run, &crawl, earlier);
    let policy = retry::policy(&settings);
    let engine = Arc::new(Engine::new(Parts {
        settings,
        limits,
        clients,
        defaults,
        filter,
        policy,
        crawl,
        output,
        warc,
        store,
        sent,
        once,
        run,
        talk,
        names,
    }));
    engine.recover(known);
    let ingest = Ingest {
        sources,
        sitemaps,
        is_complete,
        is_resumed,
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = crate::exit::runtime(runtime.worker_threads(threads()))?;
    runtime.block_on(engine.limits.ping())?;
    let exit = runtime.block_on(drive(Arc::clone(&engine), ingest, earlier));
    // A lookup or a read of standard input may still block a thread. Nothing depends on it any
    // more.
    runtime.shutdown_timeout(Duration::from_millis(100));
    if let Some(dir) = &engine.settings.save {
        report::save::remove_remains(dir);
    }
    let shared = engine.lock();
    let lanes = shared.lanes.all().iter();
    let keys = lanes.filter_map(|lane| Some(&lane.keys.first()?[0]));
    let ends = keys.map(|key| KeyEnd {
        name: key.as_str().to_owned(),
        held_back_by: engine.limits.held_back_by(key),
    });
    let keys = ends.collect();
    Ok(Fetched { exit, keys })
}

/// Says that the run continues, or that it fetches pages again.
fn tell_run(talk: &talk::Talk, run: Option<RunOfFolder>, crawl: &Crawl, earlier: (u64, u64)) {
    let (Some(run), Some(kept)) = (run, crawl.kept()) else {
        return;
    };
    let (fetched, failed) = earlier;
    if fetched + failed > 0 && kept.waiting() > 0 {
        talk.say(&format!(
            "resuming: {fetched} fetched and {failed} failed before"
        ));
    } else if run.number > 1 && kept.fetches_again() {
        let number = run.number;
        talk.say(&format!(
            "run {number} of the state folder: finished pages are fetched again"
        ));
    }
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
    let ending = tokio::spawn(end_in_time(Arc::clone(&engine)));
    engine.run().await;
    ending.abort();
    heeding.abort();
    engine.limits.settle().await;
    listening.abort();
    showing.abort();
    keeping.abort();
    engine.settle_set_aside();
    engine.left_out.tell(&engine.talk);
    let left = engine.lock().lanes.waiting() + engine.full_disk.held();
    engine.keep();
    engine.list_missing();
    // After an interrupt, a reader that still waits for input is not joined.
    let ingested = if reading.is_finished() || !engine.is_stopping() {
        reading.join().unwrap_or(Ingested {
            cut: true,
            ..Ingested::default()
        })
    } else {
        Ingested {
            cut: true,
            ..Ingested::default()
        }
    };
    engine.end_run(&ingested);
    let end = summary::End {
        seconds: began.elapsed().as_secs_f64(),
        left,
        ingested,
        earlier,
    };
    end.tell(&engine)
}

/// Stops the run at its deadline, if it has one.
async fn end_in_time(engine: Arc<Engine>) {
    if let Some(deadline) = engine.settings.bounds.deadline {
        tokio::time::sleep(deadline).await;
        let text = format!("--deadline: the run ends after {deadline:?}");
        engine.talk.say(&text);
        engine.stop();
    }
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
    let in_flight = engine.lock().lanes.in_flight();
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

/// Checks that the results overwrite nothing that the run reads or keeps.
fn spares(output: &Path, sources: &Sources, dir: Option<&Path>) -> Result<(), Wrong> {
    let what = if sources.reads(output) {
        "the input"
    } else if dir.is_some_and(|dir| state::holds(dir, output)) {
        "a file of the state folder"
    } else {
        return Ok(());
    };
    let output = output.display();
    Err(Wrong(format!("--output {output}: is {what}")))
}

fn output_of(settings: &Settings, crawl: &Crawl) -> Result<Output, Wrong> {
    let is_open = crawl
        .kept()
        .map(|kept| move |page: &LineOfPage| kept.is_open(&page.url, page.request, page.run));
    match &settings.output {
        Some(path) if path.as_os_str() == "-" => Ok(Output::stdout()),
        Some(path) => {
            let form = Form::of(path, &settings.row_headers);
            Output::file(path, form, is_open)
        }
        None => Ok(Output::stdout()),
    }
}
