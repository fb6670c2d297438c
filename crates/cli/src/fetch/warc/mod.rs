//! The archive of a run: WARC 1.1 (ISO 28500:2017), one gzip member for each record.
//!
//! A file is never continued. A process makes files of its own, so a kill tears at most the last
//! record of one file. A record is complete before its page counts as done.

mod exchange;
mod record;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use jiff::Timestamp;
use url::Url;

use crate::config::{Settings, WarcSettings};
use crate::exit::{Wrong, make_folder};
pub(crate) use exchange::{Exchange, SentHead};
use record::{Record, base32, new_id};

/// The most bodies that are known, for revisit records. One takes some 150 bytes.
const KNOWN_MAX: usize = 100_000;
const IDENTICAL: &str = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest";
const NOT_MODIFIED: &str = "http://netpreserve.org/warc/1.1/revisit/server-not-modified";

/// The archive of a run.
pub(crate) struct Warc(Mutex<Inner>);

struct Inner {
    settings: WarcSettings,
    /// The content of the first record of each file.
    info: String,
    /// The number of the next file.
    next: u32,
    file: Option<File>,
    /// The length of the file up to the last whole exchange.
    len: u64,
    /// The first record with each body.
    known: HashMap<[u8; 20], Known>,
}

/// A record that others refer to.
#[derive(Clone)]
struct Known {
    id: String,
    url: Box<str>,
    at: Timestamp,
}

impl Warc {
    /// Opens the first file of the run.
    pub(crate) fn open(warc: &WarcSettings, settings: &Settings) -> Result<Self, Wrong> {
        let robots = if settings.robots { "obey" } else { "ignore" };
        let info = format!(
            "software: politely/{}\r\nformat: WARC File Format 1.1\r\nconformsTo: \
             http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n\
             robots: {robots}\r\nhttp-header-user-agent: {}\r\n",
            env!("CARGO_PKG_VERSION"),
            settings.user_agent
        );
        make_folder(warc.folder())?;
        let mut inner = Inner {
            settings: warc.clone(),
            info,
            next: 0,
            file: None,
            len: 0,
            known: HashMap::new(),
        };
        let opened = inner.open_next();
        opened.map_err(|why| Wrong::file(&warc.file(inner.next), &why))?;
        Ok(Self(Mutex::new(inner)))
    }

    /// Writes an exchange for `url`.
    ///
    /// # Errors
    /// It could not be written, and nothing of it is in the file.
    pub(crate) fn write(&self, url: &Url, exchange: Exchange) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.len >= inner.settings.size_max || inner.file.is_none() {
            inner.open_next()?;
        }
        let len = inner.len;
        let written = inner.write(url, exchange);
        if written.is_err()
            && let Some(file) = &inner.file
        {
            // Half a record would end what a reader sees of the file.
            let is_cut = file.set_len(len).is_ok();
            if !is_cut || (&*file).seek(SeekFrom::Start(len)).is_err() {
                inner.file = None;
            }
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Opens the next file, and writes its first record.
    fn open_next(&mut self) -> io::Result<()> {
        self.file = None;
        let (path, file) = loop {
            let path = self.settings.file(self.next);
            let opened = OpenOptions::new().write(true).create_new(true).open(&path);
            match opened {
                // It is of an earlier run, or of another one.
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => self.next += 1,
                opened => break (path, opened?),
            }
        };
        self.next += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut record = Record::new("warcinfo", &new_id(), Timestamp::now());
        record.field("WARC-Filename", &name);
        record.field("Content-Type", "application/warc-fields");
        let mut out = BufWriter::new(&file);
        record.write(&mut out, self.info.as_bytes(), None)?;
        out.flush()?;
        drop(out);
        self.len = (&file).stream_position()?;
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, url: &Url, mut exchange: Exchange) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut url = url.clone();
        // Logins are no part of what is published. A URL with a host may have none.
        let _ = (url.set_username(""), url.set_password(None));
        let (id, at) = (new_id(), exchange.at);
        let digest = exchange.digest();
        let digest: [u8; 20] = digest.as_ref().try_into().unwrap_or_default();
        let known = self.known.get(&digest);
        let revisits = match exchange.status {
            StatusCode::NOT_MODIFIED => Some(NOT_MODIFIED),
            _ if known.is_some() && exchange.is_whole && exchange.len > 0 => Some(IDENTICAL),
            _ => None,
        };
        let kind = if revisits.is_some() {
            "revisit"
        } else {
            "response"
        };
        let mut record = Record::new(kind, &id, at);
        record.field("WARC-Target-URI", url.as_str());
        record.field("Content-Type", "application/http;msgtype=response");
        if exchange.is_http2 {
            record.field("WARC-Protocol", "h2");
        }
        if let Some(profile) = revisits {
            record.field("WARC-Profile", profile);
        }
        if revisits != Some(NOT_MODIFIED) {
            record.field("WARC-Payload-Digest", &format!("sha1:{}", base32(&digest)));
        }
        if !exchange.is_whole {
            record.field("WARC-Truncated", "length");
        }
        if let (Some(known), Some(IDENTICAL)) = (known, revisits) {
            record.field("WARC-Refers-To", &known.id);
            record.field("WARC-Refers-To-Target-URI", &known.url);
            record.field("WARC-Refers-To-Date", &known.at.to_string());
        }
        let head = exchange.head();
        exchange.body.seek(SeekFrom::Start(0))?;
        let body = (&mut exchange.body, exchange.len);
        let body = revisits.is_none().then_some(body);
        let mut out = BufWriter::new(file);
        record.write(&mut out, &head, body)?;
        let mut request = Record::new("request", &new_id(), at);
        request.field("WARC-Target-URI", url.as_str());
        request.field("WARC-Concurrent-To", &id);
        request.field("Content-Type", "application/http;msgtype=request");
        request.write(&mut out, &exchange.request, None)?;
        out.flush()?;
        drop(out);
        self.len = (&*file).stream_position()?;
        let is_useful = exchange.is_whole && exchange.len > 0 && revisits.is_none();
        if is_useful && self.known.len() < KNOWN_MAX {
            let url = url.as_str().into();
            self.known.insert(digest, Known { id, url, at });
        }
        Ok(())
    }
}
