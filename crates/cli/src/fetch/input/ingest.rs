//! Reads the input into the spool and the frontier, line by line, while pages are already being
//! fetched.

use std::sync::Arc;

use url::Url;

use super::lines::{Line, Place, Sources, shown, without_login};
use super::spool::SpoolWriter;
use crate::exit::{Wrong, io_words};
use crate::fetch::engine::Engine;
use crate::fetch::frontier::pending::Pending;
use crate::fetch::report::output::Row;
use crate::fetch::state::journal::Finished;

/// URLs added under one lock. A batch is long enough to be cheap and short enough that no worker
/// waits long.
const BATCH: usize = 512;

/// The result of reading the input.
#[derive(Debug, Default)]
pub(crate) struct Ingested {
    /// The number of lines that are not a URL.
    pub(crate) malformed: u64,
    /// Whether reading stopped before the end of the input.
    pub(crate) cut: bool,
}

/// The input and its state at the start.
pub(crate) struct Ingest {
    pub(crate) sources: Sources,
    pub(crate) writer: SpoolWriter,
    pub(crate) finished: Finished,
    /// Whether the spool has the whole input already.
    pub(crate) complete: bool,
}

impl Ingest {
    /// Reads the whole input. Blocks while standard input does.
    pub(crate) fn run(mut self, engine: &Arc<Engine>) -> Ingested {
        let mut ingested = Ingested::default();
        if let Err(why) = self.read(engine, &mut ingested) {
            if !engine.is_state_lost() {
                engine.talk.say(&format!("error: {why}"));
            }
            ingested.cut = true;
        }
        engine.lock().frontier.close_input();
        engine.look_again();
        ingested
    }

    fn read(&mut self, engine: &Arc<Engine>, ingested: &mut Ingested) -> Result<(), Wrong> {
        let mut batch = Batch {
            engine,
            urls: Vec::with_capacity(BATCH),
        };
        let mut lines = 0;
        let spool_wrong = |why: &std::io::Error| {
            let why = io_words(why);
            if engine.store.is_some() {
                engine.lose_state(&why);
            }
            Wrong(format!("spool of the input: {why}"))
        };
        engine
            .spool
            .scan(|offset, line| {
                lines += 1;
                if !self.finished.has(offset) {
                    let place = Place {
                        source: "urls.txt".to_owned(),
                        line: lines,
                    };
                    batch.line(offset, line, &place, ingested);
                }
            })
            .map_err(|why| spool_wrong(&why))?;
        batch.flush();
        if self.sources.is_empty() {
            if !self.complete {
                engine.talk.say(&format!(
                    "warning: the input was cut at line {lines} when the last run ended; give it again to add the rest"
                ));
            }
            return Ok(());
        }
        self.skip_copied(engine, lines)?;
        let mut line = Vec::new();
        while let Some(place) = self.sources.next_line(&mut line)? {
            if engine.is_stopping() {
                ingested.cut = true;
                return Ok(());
            }
            let offset = self.writer.push(&line).map_err(|why| spool_wrong(&why))?;
            batch.line(offset, &line, &place, ingested);
            // Queued URLs must be readable, and an input that pauses must not hold back its lines.
            if batch.urls.len() >= BATCH || !self.sources.has_more_at_hand() {
                self.writer.flush().map_err(|why| spool_wrong(&why))?;
                batch.flush();
            }
        }
        self.writer.flush().map_err(|why| spool_wrong(&why))?;
        batch.flush();
        if let Some(store) = &engine.store {
            store
                .set_input_complete()
                .map_err(|why| Wrong(format!("politely.redb: {why}")))?;
        }
        Ok(())
    }

    /// Skips `lines` lines that an earlier run copied, and checks that they are the same. The list
    /// may have grown since.
    fn skip_copied(&mut self, engine: &Engine, lines: u64) -> Result<(), Wrong> {
        let (mut given, mut odd) = (Vec::new(), None);
        let compare = |_, copied: &[u8]| {
            if odd.is_some() {
                return;
            }
            odd = match self.sources.next_line(&mut given) {
                Ok(Some(_)) if given == copied => None,
                Ok(Some(place)) => Some(Wrong(format!(
                    "{place}: not what the state folder has there; a new list needs a new --state folder"
                ))),
                Ok(None) => Some(Wrong(format!(
                    "the state folder has {lines} lines of input, more than were given; a new list needs a new --state folder"
                ))),
                Err(why) => Some(why),
            };
        };
        if lines > 0 {
            let scanned = engine.spool.scan(compare);
            scanned.map_err(|why| Wrong(format!("spool of the input: {}", io_words(&why))))?;
        }
        odd.map_or(Ok(()), Err)
    }
}

/// URLs on their way into the frontier.
struct Batch<'a> {
    engine: &'a Arc<Engine>,
    urls: Vec<(Url, u64)>,
}

impl Batch<'_> {
    fn line(&mut self, offset: u64, line: &[u8], place: &Place, ingested: &mut Ingested) {
        match Line::parse(line) {
            Line::Nothing => {}
            Line::Url(url) => self.urls.push((url, offset)),
            Line::Malformed(why) => {
                ingested.malformed += 1;
                let line = shown(line);
                self.engine
                    .talk
                    .about_line(&format!("{place}: {why}: {}", without_login(&line)));
                let row = Row {
                    url: &line,
                    key: "",
                    status: None,
                    attempts: 0,
                    refused: 0,
                    bytes: 0,
                    wait_ms: 0,
                    latency_ms: 0,
                    saved: None,
                    error: Some(&why),
                };
                self.engine.write_unlisted(offset, &row);
            }
        }
        if self.urls.len() >= BATCH * 4 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.urls.is_empty() {
            return;
        }
        let mut unkeyed = Vec::new();
        {
            let mut shared = self.engine.lock();
            let now = self.engine.limits.now();
            for (url, offset) in self.urls.drain(..) {
                // A known lane needs no new keys.
                let mut wrong = None;
                let (lane, new) = shared.frontier.lane_of(&url, || {
                    self.engine.limits.keys(&url).unwrap_or_else(|why| {
                        wrong = Some(why);
                        Box::default()
                    })
                });
                if let Some(why) = wrong {
                    unkeyed.push((url, offset, why));
                    continue;
                }
                if new {
                    self.engine.introduce(shared.frontier.lane_mut(lane));
                }
                shared.frontier.add(lane, offset, now);
            }
            self.engine.set_hosts(shared.frontier.lanes().len());
        }
        for (url, offset, why) in unkeyed {
            let row = Pending::page(offset);
            self.engine
                .write(offset, &row.row(url.as_str(), "", &why.to_string()));
        }
        self.engine.look_again();
    }
}
