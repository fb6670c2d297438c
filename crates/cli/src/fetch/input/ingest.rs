//! Reads the input into the crawl, line by line, while pages are already being fetched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use politely_frontier::ValidPage;
use url::Url;

use super::json;
use super::lines::{LINE_MAX, Line, Place, Sources, shown, without_login};
use crate::exit::Wrong;
use crate::fetch::add::BATCH;
use crate::fetch::crawl::{Kept, input_page};
use crate::fetch::engine::Engine;
use crate::fetch::report::output::Row;
use crate::fetch::request::{LineRequest, PageRequest};
use crate::fetch::site;

/// The result of reading the input.
#[derive(Debug, Default)]
pub(crate) struct Ingested {
    /// The number of lines that are not a URL.
    pub(crate) malformed: u64,
    /// Whether reading stopped before the end of the input.
    pub(crate) cut: bool,
    /// The number of lines whose page the crawl had before.
    pub(crate) known: u64,
    /// Whether `--max-pages` left a part of the input unread.
    pub(crate) is_partial: bool,
}

/// The input and its state at the start.
pub(crate) struct Ingest {
    pub(crate) sources: Sources,
    /// The sitemaps of the settings.
    pub(crate) sitemaps: Vec<Url>,
    /// Whether an earlier process read its whole input.
    pub(crate) is_complete: bool,
    /// Whether an earlier process began the run.
    pub(crate) is_resumed: bool,
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
        // Answers may name further pages until the end.
        if !engine.settings.site.finds_pages()
            && let Err(why) = engine.crawl.close_input()
        {
            engine.lose_crawl(&why);
        }
        engine.lock().lanes.close_input();
        engine.look_again();
        ingested
    }

    fn read(&mut self, engine: &Arc<Engine>, ingested: &mut Ingested) -> Result<(), Wrong> {
        if self.is_resumed {
            resume(engine)?;
        }
        for url in std::mem::take(&mut self.sitemaps) {
            let home = url.clone();
            let sitemap = site::sitemap(url, &home).map_err(Wrong)?;
            retried(engine, || engine.add_sitemaps(&sitemap.sitemaps))?;
        }
        if self.sources.is_empty() {
            if let Some(kept) = engine.crawl.kept().filter(|kept| kept.fetches_again()) {
                return all_again(engine, kept, ingested);
            }
            if !self.is_complete && self.is_resumed {
                engine.talk.say(
                    "warning: the input was cut when the last run ended; give it again to add the rest",
                );
            }
            return Ok(());
        }
        complete(engine, false)?;
        let mut batch = Batch {
            engine,
            ingested,
            pages: Vec::with_capacity(BATCH),
        };
        let mut line = Vec::new();
        while let Some(place) = self.sources.next_line(&mut line)? {
            if engine.is_stopping() {
                batch.ingested.cut = true;
                return Ok(());
            }
            batch.line(&line, &place)?;
            // An input that pauses must not hold back its lines.
            let len_max = batch.len_max();
            if batch.pages.len() >= len_max || !self.sources.has_more_at_hand() {
                batch.flush()?;
            }
            if batch.len_max() == 0 {
                let most = engine.settings.bounds.pages_max.unwrap_or_default();
                let text = format!(
                    "--max-pages: {most} pages are taken; the rest of the input is not read"
                );
                engine.talk.say(&text);
                batch.ingested.is_partial = true;
                return Ok(());
            }
        }
        batch.flush()?;
        complete(engine, true)?;
        if let Some(kept) = engine.crawl.kept() {
            tell_unrepeated(engine, kept);
        }
        if !self.is_resumed && ingested.known > 0 {
            let known = ingested.known;
            engine.talk.say(&format!(
                "hint: {known} of the URLs were given before; each is fetched once"
            ));
        }
        Ok(())
    }
}

/// Queues the finished pages of the state folder again.
fn all_again(engine: &Arc<Engine>, kept: &Kept, ingested: &mut Ingested) -> Result<(), Wrong> {
    loop {
        let put = kept.put_all_again(|origin, pages| {
            if let (Ok(url), 1..) = (Url::parse(origin), pages) {
                engine.enqueue([(&url, pages)].into_iter());
                engine.look_again();
            }
            ingested.cut = engine.is_stopping();
            !ingested.cut
        });
        match put {
            // Pages that are queued are not queued twice.
            Err(why) if engine.waits_for_room(&why) => {}
            put => {
                tell_unrepeated(engine, kept);
                return put.map_err(|why| lost(engine, &why));
            }
        }
    }
}

/// Says that requests are not sent again because they may act twice.
fn tell_unrepeated(engine: &Engine, kept: &Kept) {
    let pages = kept.unrepeated();
    if pages > 0 {
        engine.talk.say(&format!(
            "{pages} requests are not sent again, since they may act twice (POST and the like); \
             --repeat-posts sends them"
        ));
    }
}

/// Queues the pages that earlier processes left.
fn resume(engine: &Arc<Engine>) -> Result<(), Wrong> {
    let Some(kept) = engine.crawl.kept() else {
        return Ok(());
    };
    let origins = kept.origins(|origin, pages| {
        if let Ok(url) = Url::parse(origin) {
            engine.enqueue([(&url, pages)].into_iter());
        }
    });
    engine.look_again();
    origins.map_err(|why| lost(engine, &why))
}

/// Records whether the whole input is in the crawl.
fn complete(engine: &Engine, is_complete: bool) -> Result<(), Wrong> {
    let Some(store) = &engine.store else {
        return Ok(());
    };
    loop {
        match store.set_input_complete(is_complete) {
            Err(why) if engine.waits_for_room(&why.to_string()) => {}
            done => return done.map_err(|why| Wrong(format!("politely.redb: {why}"))),
        }
    }
}

/// Reports that the crawl cannot take pages.
fn lost(engine: &Engine, why: &str) -> Wrong {
    if !engine.full_disk.is_full() {
        engine.lose_crawl(why);
    }
    Wrong(format!("the rest of the input is not read: {why}"))
}

/// Pages on their way into the crawl.
struct Batch<'a> {
    engine: &'a Arc<Engine>,
    ingested: &'a mut Ingested,
    pages: Vec<(Url, ValidPage)>,
}

impl Batch<'_> {
    fn line(&mut self, line: &[u8], place: &Place) -> Result<(), Wrong> {
        let page = if !json::is_json(line) {
            match Line::parse(line) {
                Line::Nothing => return Ok(()),
                Line::Malformed(why) => Err(why),
                Line::Url(url) => {
                    let given = String::from_utf8_lossy(line.trim_ascii());
                    self.page(url, &given, LineRequest::default())
                }
            }
        } else if line.len() >= LINE_MAX {
            Err(format!("longer than {LINE_MAX} bytes"))
        } else {
            json::read(line).and_then(|read| self.json_page(read))
        };
        match page {
            Ok((url, _)) if !self.engine.filter.lets(&url) => {
                self.engine
                    .left_out
                    .patterns
                    .fetch_add(1, Ordering::Relaxed);
            }
            Ok(page) => self.pages.push(page),
            Err(why) => self.malformed(line, place, &why)?,
        }
        Ok(())
    }

    /// Returns the most pages that are added in one call.
    fn len_max(&self) -> usize {
        self.engine.room_for_pages().min(BATCH as u64) as usize
    }

    fn json_page(&self, read: json::Read) -> Result<(Url, ValidPage), String> {
        let given = read.url.trim();
        let (url, mut page) = match Line::parse(given.as_bytes()) {
            Line::Nothing => Err("`url`: not a URL".to_owned()),
            Line::Malformed(why) => Err(format!("`url`: {why}")),
            Line::Url(url) => self.page(url, given, read.request),
        }?;
        if let Some(priority) = read.priority {
            if self.engine.store.is_none() {
                return Err("`priority` has an effect only with --state".to_owned());
            }
            page.priority = priority;
        }
        Ok((url, page))
    }

    fn page(&self, url: Url, given: &str, line: LineRequest) -> Result<(Url, ValidPage), String> {
        let request = PageRequest::of(&url, given, line, &self.engine.defaults);
        let page = input_page(url.clone(), given, request.as_ref())?;
        Ok((url, page))
    }

    /// Reports a line that is not a URL, once per run.
    fn malformed(&mut self, line: &[u8], place: &Place, why: &str) -> Result<(), Wrong> {
        let engine = self.engine;
        if let Some(kept) = engine.crawl.kept() {
            let is_new = loop {
                match kept.is_new_line(line) {
                    Err(why) if engine.waits_for_room(&why) => {}
                    known => break known.map_err(|why| lost(engine, &why))?,
                }
            };
            if !is_new {
                return Ok(());
            }
        }
        self.ingested.malformed += 1;
        // A JSON object may have secrets beside its URL.
        let line = if json::is_json(line) {
            shown(&json::shown(line))
        } else {
            shown(line)
        };
        let said = format!("{place}: {why}: {}", without_login(&line));
        engine.talk.about_line(&said);
        engine.write_unlisted(Row {
            url: &line,
            error: Some(why),
            ..Row::default()
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Wrong> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let (urls, pages): (Vec<Url>, Vec<ValidPage>) = self.pages.drain(..).unzip();
        let engine = self.engine;
        let (_, added) = retried(engine, || engine.add(&urls, &pages))?;
        self.ingested.known += added.known;
        if added.is_full {
            return Err(lost(engine, "the crawl has 4 billion pages or hosts"));
        }
        Ok(())
    }
}

/// Adds pages, again while the disk is full.
fn retried<T>(engine: &Engine, add: impl Fn() -> Result<T, String>) -> Result<T, Wrong> {
    loop {
        match add() {
            Err(why) if engine.waits_for_room(&why) => {}
            added => return added.map_err(|why| lost(engine, &why)),
        }
    }
}
