//! Content codings: the codings of a response, and the decoding of its body.
//!
//! [`Codings::of`] reads the `Content-Encoding` fields of a response. A [`Decoder`] undoes the
//! codings part by part; [`decode`] undoes them for a whole body. This module does no I/O: the
//! caller passes the bytes.
//!
//! | coding | names | after the end of its stream |
//! | --- | --- | --- |
//! | gzip (RFC 1952) | `gzip`, `x-gzip` | a further gzip member is decoded; other bytes are ignored |
//! | deflate | `deflate`: with the zlib wrapper (RFC 1950), or raw (RFC 1951) as some servers send it | ignored |
//! | Brotli (RFC 7932) | `br` | ignored |
//! | Zstandard (RFC 8878), windows of at most 8 MiB (RFC 9659) | `zstd` | a further frame is decoded; other bytes are ignored |
//! | none | `identity` | |
//!
//! Names are case-insensitive (RFC 9110, section 8.4.1). Several codings in one field or in several
//! fields are undone in reverse order, at most [`LAYERS_MAX`] of them. Another coding of the
//! registry is [`CodingError::Unsupported`]. A name that is no coding leaves the body as it is.
//!
//! An empty body is complete in every coding, because servers name a coding for empty bodies too.

mod brotli;
mod decoder;
#[cfg(test)]
mod tests;

use std::fmt;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use smallvec::SmallVec;

pub use decoder::{Decoder, Flow};

/// Value of `Accept-Encoding` that requests exactly the codings that a [`Decoder`] can undo.
pub const ACCEPTED: &str = "gzip, deflate, br, zstd";

/// Maximum number of codings of one body; curl has the same limit.
pub const LAYERS_MAX: usize = 5;

/// The content codings of the IANA registry that a [`Decoder`] cannot undo, and an old name of one.
/// Every other name, such as `utf-8` or `none`, says nothing about the body. Browsers and curl read
/// such a body as it is.
const REGISTERED: [&str; 7] = [
    "aes128gcm",
    "compress",
    "dcb",
    "dcz",
    "exi",
    "pack200-gzip",
    "x-compress",
];

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` or `x-gzip`.
    Gzip,
    /// `deflate`, with or without the zlib wrapper.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

impl Coding {
    /// Returns the name of this coding in RFC 9110 and its registry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Coding); 5] = [
            (b"gzip", Coding::Gzip),
            (b"x-gzip", Coding::Gzip),
            (b"deflate", Coding::Deflate),
            (b"br", Coding::Brotli),
            (b"zstd", Coding::Zstd),
        ];
        let known = NAMES
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known));
        known.map(|&(_, coding)| coding)
    }
}

/// The codings of one body, in the order in which the server applied them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings(SmallVec<[Coding; LAYERS_MAX]>);

impl Codings {
    /// Reads all `Content-Encoding` fields of `headers`. A name that is no content coding, and the
    /// parameters of a name, are ignored.
    ///
    /// # Errors
    /// Fails if a coding cannot be undone, or if there are more than [`LAYERS_MAX`] codings.
    pub fn of(headers: &HeaderMap) -> Result<Self, CodingError> {
        let mut codings = SmallVec::new();
        for field in headers.get_all(CONTENT_ENCODING) {
            for name in field.as_bytes().split(|byte| *byte == b',') {
                let name = name.split(|byte| *byte == b';').next().unwrap_or_default();
                let name = name.trim_ascii();
                let Some(coding) = Coding::named(name) else {
                    let known = |known: &&&str| name.eq_ignore_ascii_case(known.as_bytes());
                    match REGISTERED.iter().find(known) {
                        Some(known) => return Err(CodingError::Unsupported(known)),
                        None => continue,
                    }
                };
                if codings.len() == LAYERS_MAX {
                    return Err(CodingError::TooMany);
                }
                codings.push(coding);
            }
        }
        Ok(Self(codings))
    }

    /// Returns whether the body has no coding.
    pub fn is_identity(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the codings in the order in which the server applied them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Coding> + '_ {
        self.0.iter().copied()
    }
}

/// The reason why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// The server applied a coding that was not requested.
    #[error("cannot decode content coding \"{0}\"; the server must send one of {ACCEPTED}")]
    Unsupported(&'static str),
    /// The server applied more than [`LAYERS_MAX`] codings.
    #[error("cannot decode a body with more than {LAYERS_MAX} content codings")]
    TooMany,
    /// The bytes violate the coding's format, or a checksum is wrong.
    #[error("cannot decode content coding \"{}\": the bytes are damaged", .0.name())]
    Damaged(Coding),
    /// The body ended before the coding's stream did.
    #[error("cannot decode content coding \"{}\": the body ends too early", .0.name())]
    CutOff(Coding),
    /// A decoded body, or one between two codings, is longer than the limit.
    #[error("the decoded body is longer than the limit")]
    TooLong,
}

/// Decodes a whole body by its response's `headers`, to at most `bytes_max` bytes.
///
/// For robots.txt, an error means that the rules are unknown. Pass `None` as the status to
/// [`Robots::from_response`](crate::robots::Robots::from_response) then, since "allow all" would be
/// a guess.
///
/// # Errors
/// Fails if a coding cannot be undone, if the bytes are damaged or cut off, or if the body is
/// longer than `bytes_max`.
pub fn decode(headers: &HeaderMap, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, CodingError> {
    let mut decoder = Decoder::new(&Codings::of(headers)?, bytes_max as u64);
    let mut whole = Vec::new();
    let mut take = |part: &[u8]| {
        let fits = part.len() <= bytes_max - whole.len();
        if fits {
            whole.extend_from_slice(part);
        }
        fits
    };
    if decoder.push(body, &mut take)? == Flow::Enough || decoder.end(&mut take)? == Flow::Enough {
        return Err(CodingError::TooLong);
    }
    Ok(whole)
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
