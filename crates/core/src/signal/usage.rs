//! Reads the tokens that an answer of a language model's API states, while its body passes.
//!
//! The reader knows the `usage` of `OpenAI` and Anthropic and the `usageMetadata` of Gemini, in a
//! JSON body and in an event stream. It keeps the key of each open object and one short word, so
//! its memory does not grow with the body. The rules are those of `politely_client.usage` of the
//! Python client:
//!
//! - The last usage of `OpenAI` and Gemini counts. A stream's usage without output is a
//!   placeholder, and states the input only.
//! - The largest numbers of Anthropic count. Tokens that were written into its cache are input, and
//!   those that were read from it are not. The output in a `message_start` is a placeholder.
//! - An object counts once it is whole. A number that is not whole or below 0 is ignored.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::budget::UnitCosts;

/// The units of a usage.
const USAGE_UNITS: [&str; 3] = ["tokens", "input_tokens", "output_tokens"];

/// The longest word that means something: `cache_creation_input_tokens`.
const WORD_MAX: usize = 27;
/// The deepest object that means something: `usage` in `message` or `response`.
const DEPTH_MAX: usize = 3;
const DATA: &[u8] = b"data:";

/// A reader of the usage in one body.
#[derive(Clone, Debug, Default)]
pub struct UsageReader {
    /// The lines of an event stream. `None` for a JSON body.
    lines: Option<Lines>,
    json: Json,
    found: Usage,
}

/// The place in the lines of an event stream, which end at CR and LF only.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// The length of the line so far, at most that of [`DATA`].
    len: usize,
    is_other: bool,
    after_cr: bool,
}

/// The place in a JSON text.
#[derive(Clone, Debug, Default)]
struct Json {
    /// The number of open objects and arrays. An array around the whole text does not count.
    depth: usize,
    keys: [Word; DEPTH_MAX],
    /// The last string or number.
    word: Word,
    in_string: bool,
    after_backslash: bool,
    in_array: bool,
    stated: Stated,
}

/// A string or number. A longer one than [`WORD_MAX`] has no bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    bytes: [u8; WORD_MAX],
    len: usize,
    is_string: bool,
}

/// The numbers of one JSON object.
#[derive(Clone, Copy, Debug, Default)]
struct Stated {
    input: Option<u64>,
    /// Input beside `input`: what Anthropic wrote into its cache, or tools of Gemini.
    input_beside: u64,
    output: Option<u64>,
    /// The thoughts of Gemini.
    output_beside: u64,
    total: Option<u64>,
    /// Whether only `OpenAI` and Gemini name the input so.
    is_prompt: bool,
    is_message_start: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    tokens: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
}

impl UsageReader {
    /// Returns a reader for the body of an answer with these `headers`. Returns `None` if the body
    /// is neither JSON nor an event stream, or has a content coding.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let codings = headers.get_all(CONTENT_ENCODING).into_iter();
        let mut codings = codings.filter(|coding| *coding != "identity");
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next()?.trim().to_ascii_lowercase();
        let is_stream = kind == "text/event-stream";
        let is_json = kind == "application/json" || kind.ends_with("+json");
        (codings.next().is_none() && (is_stream || is_json)).then(|| Self {
            lines: is_stream.then(Lines::default),
            ..Self::default()
        })
    }

    /// Returns whether a request of these estimated costs is charged for tokens, so that its usage
    /// matters.
    pub fn corrects(estimates: &UnitCosts) -> bool {
        let mut estimates = estimates.iter().filter(|(_, amount)| *amount > 0);
        estimates.any(|(unit, _)| USAGE_UNITS.contains(&unit.to_string().as_str()))
    }

    /// Reads a further part of the body.
    pub fn read(&mut self, mut part: &[u8]) {
        let Some(mut lines) = self.lines else {
            return self.json.read(part, false, &mut self.found);
        };
        while let Some(end) = part.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.read_line(&mut lines, &part[..end]);
            let is_second = lines.after_cr && lines.len == 0 && part[end] == b'\n';
            if lines.len == 0 && !is_second {
                // The event ends, and with it an object that is not whole.
                self.json = Json::default();
            } else if lines.is_data() {
                self.json.read(b"\n", true, &mut self.found);
            }
            lines = Lines {
                after_cr: part[end] == b'\r',
                ..Lines::default()
            };
            part = &part[end + 1..];
        }
        self.read_line(&mut lines, part);
        self.lines = Some(lines);
    }

    /// Returns the tokens that are known so far. Units that are not known are left out.
    pub fn used(&self) -> UnitCosts {
        let Usage {
            tokens,
            input,
            output,
        } = self.found;
        let known = USAGE_UNITS.into_iter().zip([tokens, input, output]);
        let known = known.filter_map(|(unit, amount)| Some((unit, amount?)));
        // An amount that is too large is none.
        UnitCosts::new(known).unwrap_or_default()
    }

    fn read_line(&mut self, lines: &mut Lines, part: &[u8]) {
        let mut part = part;
        while let [first, rest @ ..] = part
            && lines.len < DATA.len()
        {
            lines.is_other |= DATA[lines.len] != *first;
            lines.len += 1;
            part = rest;
        }
        if lines.is_data() {
            self.json.read(part, true, &mut self.found);
        }
    }
}

impl Lines {
    fn is_data(self) -> bool {
        self.len == DATA.len() && !self.is_other
    }
}

impl Json {
    fn read(&mut self, mut part: &[u8], is_event: bool, found: &mut Usage) {
        while let [byte, rest @ ..] = part {
            part = rest;
            if self.in_string {
                let is_escaped = std::mem::take(&mut self.after_backslash);
                match byte {
                    b'"' if !is_escaped => self.in_string = false,
                    b'\\' if !is_escaped => self.after_backslash = true,
                    byte => self.word.push(*byte),
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.word = Word::default();
                    self.word.is_string = true;
                    self.in_string = true;
                }
                b'[' if self.depth == 0 => self.in_array = true,
                b'{' | b'[' => {
                    self.word = Word::default();
                    if let Some(key) = self.keys.get_mut(self.depth) {
                        *key = Word::default();
                    }
                    self.depth = self.depth.saturating_add(1);
                }
                b':' => {
                    let word = std::mem::take(&mut self.word);
                    if let Some(level) = self.depth.checked_sub(1)
                        && let Some(key) = self.keys.get_mut(level)
                    {
                        *key = word;
                    }
                }
                b',' => self.end_value(),
                b'}' | b']' => {
                    self.end_value();
                    let was_open = self.depth > 0;
                    self.depth = self.depth.saturating_sub(1);
                    if was_open && self.depth == 0 {
                        let stated = std::mem::take(&mut self.stated);
                        found.add(&stated, is_event || self.in_array);
                    }
                }
                byte if byte.is_ascii_whitespace() => {}
                byte => self.word.push(*byte),
            }
        }
    }

    /// Takes the value that ends here, if it is a number of a usage or the type of an event.
    fn end_value(&mut self) {
        let value = std::mem::take(&mut self.word);
        let path = self.keys.get(..self.depth).unwrap_or_default();
        let (key, value) = match path {
            [key] if key.text() == b"type" => {
                self.stated.is_message_start = value.text() == b"message_start";
                return;
            }
            [usage, key] if matches!(usage.text(), b"usage" | b"usageMetadata") => (key, value),
            [holder, usage, key]
                if matches!(holder.text(), b"message" | b"response")
                    && usage.text() == b"usage" =>
            {
                (key, value)
            }
            _ => return,
        };
        let digits = std::str::from_utf8(value.text()).unwrap_or_default();
        if let Ok(number) = digits.parse()
            && !value.is_string
        {
            self.stated.put(key.text(), number);
        }
    }
}

impl Word {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len = self.len.saturating_add(1);
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Stated {
    fn put(&mut self, key: &[u8], value: u64) {
        match key {
            b"prompt_tokens" | b"promptTokenCount" => {
                self.input = Some(value);
                self.is_prompt = true;
            }
            b"input_tokens" => self.input = Some(value),
            b"cache_creation_input_tokens" | b"toolUsePromptTokenCount" => {
                self.input_beside = value;
            }
            b"completion_tokens" | b"output_tokens" | b"candidatesTokenCount" => {
                self.output = Some(value);
            }
            b"thoughtsTokenCount" => self.output_beside = value,
            b"total_tokens" | b"totalTokenCount" => self.total = Some(value),
            _ => {}
        }
    }
}

impl Usage {
    fn add(&mut self, stated: &Stated, is_event: bool) {
        let input = stated
            .input
            .map(|it| it.saturating_add(stated.input_beside));
        let output = stated
            .output
            .unwrap_or(0)
            .saturating_add(stated.output_beside);
        if stated.is_prompt || stated.total.is_some() {
            let (input, is_known) = (input.unwrap_or(0), !is_event || output > 0);
            let tokens = stated.total.unwrap_or(input.saturating_add(output));
            *self = Self {
                tokens: is_known.then_some(tokens),
                input: Some(input),
                output: is_known.then_some(output),
            };
            return;
        }
        self.input = self.input.max(input);
        if !(is_event && stated.is_message_start) {
            self.output = self.output.max(stated.output);
        }
        let both = self.input.zip(self.output);
        self.tokens = both.map(|(input, output)| input.saturating_add(output));
    }
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
