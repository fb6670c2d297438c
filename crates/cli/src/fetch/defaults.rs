//! The parts of every request that the settings give: fields, secrets from files, a method, a body.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use super::request::content_type;
use crate::config::{RequestSettings, field};
use crate::exit::Wrong;
use crate::token;

/// The largest `--data-file`, in bytes. It is in memory once.
const DATA_MAX: u64 = 64 << 20;

/// The parts of every request beside its URL, unless its input line has its own.
#[derive(Default)]
pub(crate) struct Defaults {
    /// A sensitive value stays at the origin of its page.
    pub(crate) headers: HeaderMap,
    pub(crate) method: Method,
    pub(crate) body: Option<Bytes>,
    /// The type of the body, unless a field names one.
    pub(crate) content_type: Option<HeaderValue>,
    /// Whether a request that is not idempotent gets a key.
    pub(crate) gives_keys: bool,
}

impl Defaults {
    /// Reads the files that `settings` names.
    pub(crate) fn read(settings: &RequestSettings) -> Result<Self, Wrong> {
        let mut headers = settings.headers.clone();
        for file in &settings.header_files {
            add_fields(&mut headers, file)?;
        }
        let credentials = match (&settings.bearer_file, &settings.basic_file) {
            (Some(file), _) => Some((file, format!("Bearer {}", token::of_file(file)?.trim()))),
            (None, Some(file)) => Some((file, basic(file)?)),
            (None, None) => None,
        };
        if let Some((file, text)) = credentials {
            let place = file.display();
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| Wrong(format!("{place}: must be visible characters on one line")))?;
            value.set_sensitive(true);
            if headers.insert(AUTHORIZATION, value).is_some() {
                return Err(Wrong(format!(
                    "--header Authorization cannot be combined with {place}; give one"
                )));
            }
        }
        let body = match (&settings.data, &settings.data_file) {
            (Some(text), _) => Some(Bytes::from(text.clone())),
            (None, Some(file)) => Some(data(file)?),
            (None, None) => None,
        };
        let content_type = match &body {
            Some(body) if !headers.contains_key(CONTENT_TYPE) => Some(content_type(body)),
            _ => None,
        };
        Ok(Self {
            headers,
            method: settings.method(),
            body,
            content_type,
            gives_keys: settings.gives_idempotency_keys,
        })
    }
}

/// Adds the fields of a file, one a line. All of them are secret.
fn add_fields(headers: &mut HeaderMap, file: &Path) -> Result<(), Wrong> {
    for (number, line) in (1..).zip(token::of_file(file)?.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, mut value) =
            field(line).map_err(|why| Wrong(format!("{}:{number}: {why}", file.display())))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(())
}

/// Returns the credentials of a file with a login (RFC 7617).
fn basic(file: &Path) -> Result<String, Wrong> {
    let text = token::of_file(file)?;
    let login = text.trim_end_matches(['\r', '\n']);
    if !login.contains(':') || login.contains(['\r', '\n']) {
        let place = file.display();
        return Err(Wrong(format!("{place}: must be one line USER:PASSWORD")));
    }
    Ok(format!("Basic {}", BASE64_STANDARD.encode(login)))
}

/// Reads the body of every request.
fn data(file: &Path) -> Result<Bytes, Wrong> {
    let mut body = Vec::new();
    let open = fs::File::open(file).and_then(|open| open.take(DATA_MAX + 1).read_to_end(&mut body));
    open.map_err(|why| Wrong::file(file, &why))?;
    if body.len() as u64 > DATA_MAX {
        let place = file.display();
        return Err(Wrong(format!(
            "{place}: must have at most {DATA_MAX} bytes"
        )));
    }
    Ok(body.into())
}
