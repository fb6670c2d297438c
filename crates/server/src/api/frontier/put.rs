//! Adds a stream of pages: one JSON object per line, and one line of answer for each.
//!
//! A call is a stream in both directions. Memory holds two batches of lines, whatever the caller
//! sends: one is stored while the next one is read. Nothing more is read until the answers before
//! it were handed to the connection, so a caller that does not read its answers is not read either.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use politely::core::key::KeyKind;
use politely_api::wire::{FrontierPage, Problem, PutAnswer, PutQuery, PutResult, PutSummary};
use politely_frontier::{Answer, CrawlName, FrontierError, ValidPage};

use super::named;
use crate::api::Api;
use crate::api::body::{Json, Params, Part, is_type};
use crate::api::problem::Wrong;
use crate::frontier::{FrontierService, new_page, put_answer};

/// The content type of the stream.
const NDJSON: &str = "application/x-ndjson";
/// The most bytes of a line: a URL and metadata of their largest sizes, escaped.
const LINE_MAX: usize = 256 << 10;
/// The most pages of one batch, and the bytes after which a batch is not continued.
const BATCH_MAX: usize = 5_000;
const BATCH_BYTES: usize = 1 << 20;
/// The time for the next bytes to arrive.
const READ_TIME: Duration = Duration::from_mins(1);

/// Adds pages to a crawl. The first page creates the crawl. The body has one page per line; the
/// answer has one line per page, in order. With `summary=true` the answer is one object with
/// counts.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/put", params(("crawl" = String, Path), PutQuery),
    request_body(content = FrontierPage, content_type = "application/x-ndjson"),
    responses(
        (status = 200, body = PutAnswer, content_type = "application/x-ndjson"),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(api): State<Api>,
    Part(crawl): Part,
    Params(query): Params<PutQuery>,
    request: Request,
) -> Result<Response, Wrong> {
    let frontier = api.frontier()?.clone();
    let crawl = named(&crawl)?;
    if !is_type(request.headers(), NDJSON) {
        let detail = format!("the body must be {NDJSON}, one page per line");
        return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let mut putting = Putting {
        reading: Batch::new(frontier.key_kind()),
        frontier,
        crawl,
        lines: Lines::default(),
        body: Some(request.into_body().into_data_stream()),
        storing: None,
    };
    if query.summary {
        return putting
            .summarize()
            .await
            .map(|sum| Json(sum).into_response());
    }
    // An error of the first batch fails the call. Later ones are a line of the answer.
    let first = putting.next().await?;
    let others = stream::unfold(Some(putting), |putting| async {
        let mut putting = putting?;
        match putting.next().await {
            Ok(answers) => Some((answers?, Some(putting))),
            Err(why) => Some((vec![failed(&why)], None)),
        }
    });
    let answers = stream::iter(first).chain(others).map(Ok::<_, Infallible>);
    let lines = answers.map_ok(|answers| text(&answers));
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static(NDJSON);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A call that adds pages.
struct Putting {
    frontier: FrontierService,
    crawl: CrawlName,
    lines: Lines,
    /// `None` after the end.
    body: Option<BodyDataStream>,
    /// The batch that is being read.
    reading: Batch,
    /// The batch that is being stored.
    storing: Option<Storing>,
}

/// A batch that is being stored.
struct Storing {
    /// The answers to lines that are not stored. A page has no answer yet.
    answers: Vec<Option<PutAnswer>>,
    pages: BoxFuture<'static, Result<Vec<Answer>, FrontierError>>,
}

impl Putting {
    /// Adds the next pages and returns their answers, or `None` after the last.
    async fn next(&mut self) -> Result<Option<Vec<PutAnswer>>, FrontierError> {
        let storing = match self.storing.take() {
            None => {
                self.wait().await;
                self.store()
            }
            storing => storing,
        };
        let Some(Storing { answers, mut pages }) = storing else {
            return Ok(None);
        };
        let stored = tokio::select! {
            stored = &mut pages => stored?,
            never = self.fill() => match never {},
        };
        self.storing = self.store();
        let mut stored = stored.into_iter().map(put_answer);
        let answers = answers
            .into_iter()
            .map(|answer| answer.or_else(|| stored.next()));
        Ok(Some(answers.flatten().collect()))
    }

    /// Begins to store the lines that were read, if there are any.
    fn store(&mut self) -> Option<Storing> {
        if self.reading.answers.is_empty() {
            return None;
        }
        let new = Batch::new(self.reading.kind);
        let Batch { pages, answers, .. } = std::mem::replace(&mut self.reading, new);
        let (frontier, crawl) = (self.frontier.clone(), self.crawl.clone());
        let pages = async move {
            if pages.is_empty() {
                return Ok(Vec::new());
            }
            frontier.put(crawl, pages).await
        };
        Some(Storing {
            answers,
            pages: pages.boxed(),
        })
    }

    /// Reads lines until the batch is full. Never returns, so that the caller can go on with the
    /// batch at any time.
    async fn fill(&mut self) -> Infallible {
        while let Some(body) = self.unread() {
            let chunk = body.next().await;
            self.take(chunk);
        }
        pending().await
    }

    /// Waits for a line, and reads the lines that are here already.
    async fn wait(&mut self) {
        loop {
            if self.unread().is_none() {
                return;
            }
            let is_empty = self.reading.answers.is_empty();
            let Some(body) = self.unread() else { return };
            if is_empty {
                match tokio::time::timeout(READ_TIME, body.next()).await {
                    Ok(chunk) => self.take(chunk),
                    Err(_elapsed) => {
                        let time = READ_TIME.as_secs();
                        self.end(format!("no further line came within {time} s"));
                    }
                }
            } else if let Some(chunk) = body.next().now_or_never() {
                self.take(chunk);
            } else {
                // Pages that are here already are not kept waiting for pages to come.
                return;
            }
        }
    }

    /// Parses what was read. Returns the body if the batch needs more of it.
    fn unread(&mut self) -> Option<&mut BodyDataStream> {
        self.lines.parse(&mut self.reading, self.body.is_none());
        self.body.as_mut().filter(|_| !self.reading.is_full())
    }

    fn take(&mut self, chunk: Option<Result<Bytes, axum::Error>>) {
        match chunk {
            None => self.body = None,
            Some(Ok(chunk)) => self.lines.push(&chunk),
            Some(Err(why)) => self.end(format!("the body broke off: {why}")),
        }
    }

    /// Ends the call early. The last line of the answer is `why`.
    fn end(&mut self, why: String) {
        self.body = None;
        self.lines = Lines::default();
        self.reading.answers.push(Some(failed_line(why)));
    }

    async fn summarize(mut self) -> Result<PutSummary, Wrong> {
        let mut sum = PutSummary::default();
        let mut line = 0_u64;
        loop {
            let answers = match self.next().await {
                Ok(Some(answers)) => answers,
                Ok(None) => return Ok(sum),
                Err(why) if line == 0 => return Err(why.into()),
                Err(why) => {
                    sum.failed = Some(why.to_string());
                    return Ok(sum);
                }
            };
            for answer in answers {
                line += 1;
                match answer.answer {
                    PutResult::New => sum.new += 1,
                    PutResult::Known => sum.known += 1,
                    PutResult::Full => sum.full += 1,
                    PutResult::Invalid => {
                        sum.invalid += 1;
                        let why = answer.detail.unwrap_or_default();
                        sum.first_invalid
                            .get_or_insert_with(|| format!("page {line}: {why}"));
                    }
                    PutResult::Failed => sum.failed = answer.detail,
                }
            }
        }
    }
}

/// The pages of a batch, and the answers to its lines. A page has no answer yet.
struct Batch {
    kind: KeyKind,
    pages: Vec<ValidPage>,
    answers: Vec<Option<PutAnswer>>,
    bytes: usize,
}

impl Batch {
    const fn new(kind: KeyKind) -> Self {
        Self {
            kind,
            pages: Vec::new(),
            answers: Vec::new(),
            bytes: 0,
        }
    }

    const fn is_full(&self) -> bool {
        self.answers.len() >= BATCH_MAX || self.bytes >= BATCH_BYTES
    }

    fn add(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        self.bytes += line.len();
        let page = match line.first() {
            // serde would accept an array as the fields in their order.
            Some(b'{') => {
                serde_json::from_slice::<FrontierPage>(line).map_err(|why| why.to_string())
            }
            _ => Err("not a JSON object: send one page per line, as {\"url\": \"…\"}".to_owned()),
        };
        let check = |page| ValidPage::new(page, self.kind).map_err(|why| why.to_string());
        match page.and_then(new_page).and_then(check) {
            Ok(page) => {
                self.pages.push(page);
                self.answers.push(None);
            }
            Err(why) => self.refuse(why),
        }
    }

    fn refuse(&mut self, why: String) {
        self.answers.push(Some(PutAnswer {
            answer: PutResult::Invalid,
            detail: Some(why),
        }));
    }
}

/// The bytes that arrived and are not parsed yet.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// How many of the bytes are parsed.
    parsed: usize,
    /// Whether the rest of the present line is skipped, because the line is too long.
    is_skipping: bool,
}

impl Lines {
    fn push(&mut self, chunk: &Bytes) {
        self.bytes.drain(..self.parsed);
        self.parsed = 0;
        self.bytes.extend_from_slice(chunk);
    }

    /// Parses whole lines until the batch is full. At the end of the body the last line needs no
    /// line feed.
    fn parse(&mut self, batch: &mut Batch, is_end: bool) {
        while !batch.is_full() {
            let rest = &self.bytes[self.parsed..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let Some(length) = end.or_else(|| (is_end && !rest.is_empty()).then_some(rest.len()))
            else {
                break;
            };
            if std::mem::take(&mut self.is_skipping) {
                // The answer to this line was given when it grew too long.
            } else if length > LINE_MAX {
                batch.refuse(too_long());
            } else {
                batch.add(&rest[..length]);
            }
            self.parsed = (self.parsed + length + 1).min(self.bytes.len());
        }
        let rest = self.bytes.len() - self.parsed;
        if rest > LINE_MAX && !batch.is_full() {
            if !std::mem::replace(&mut self.is_skipping, true) {
                batch.refuse(too_long());
            }
            self.parsed = self.bytes.len();
        }
    }
}

fn too_long() -> String {
    format!("the line is longer than {LINE_MAX} bytes")
}

fn failed(why: &FrontierError) -> PutAnswer {
    failed_line(why.to_string())
}

fn failed_line(why: String) -> PutAnswer {
    PutAnswer {
        answer: PutResult::Failed,
        detail: Some(why),
    }
}

/// Returns answers as lines.
fn text(answers: &[PutAnswer]) -> Bytes {
    let mut text = Vec::with_capacity(answers.len() * 20);
    for answer in answers {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut text, answer);
        text.push(b'\n');
    }
    text.into()
}
