//! Reads text of strangers as UTF-8, whatever its bytes are.
//!
//! The addresses in a page or a sitemap are ASCII nearly always, in nearly any charset. So its
//! charset is not looked up: UTF-16 is known by its byte order mark, and a byte that is not part of
//! UTF-8 becomes `%XX`, as in a line of the input.

use std::io::{self, Read};

/// The bytes that are read at a time.
const CHUNK: usize = 8 * 1024;

/// A reader of UTF-8.
pub(crate) struct Utf8<R> {
    inner: R,
    /// The bytes that were read and are not text yet.
    raw: Vec<u8>,
    text: Vec<u8>,
    /// The number of bytes of `text` that were handed out.
    used: usize,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Unknown,
    Utf8,
    /// `true` means that the high byte comes first.
    Utf16(bool),
    /// The end was read.
    Over,
}

impl<R: Read> Utf8<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            raw: Vec::new(),
            text: Vec::new(),
            used: 0,
            form: Form::Unknown,
        }
    }

    /// Reads until there is text, or nothing is left.
    fn fill(&mut self) -> io::Result<()> {
        self.text.clear();
        self.used = 0;
        while self.text.is_empty() && self.form != Form::Over {
            let before = self.raw.len();
            self.raw.resize(before + CHUNK, 0);
            let read = loop {
                match self.inner.read(&mut self.raw[before..]) {
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
            self.raw.truncate(before + *read.as_ref().unwrap_or(&0));
            let is_last = read? == 0;
            if self.form == Form::Unknown {
                if self.raw.len() < 3 && !is_last {
                    continue;
                }
                self.begin();
            }
            match self.form {
                Form::Utf16(is_big) => utf16(&mut self.raw, &mut self.text, is_big),
                _ => utf8(&mut self.raw, &mut self.text, is_last),
            }
            if is_last {
                self.form = Form::Over;
            }
        }
        Ok(())
    }

    /// Skips the byte order mark.
    fn begin(&mut self) {
        let (mark, form) = match *self.raw {
            [0xef, 0xbb, 0xbf, ..] => (3, Form::Utf8),
            [0xff, 0xfe, ..] => (2, Form::Utf16(false)),
            [0xfe, 0xff, ..] => (2, Form::Utf16(true)),
            _ => (0, Form::Utf8),
        };
        self.raw.drain(..mark);
        self.form = form;
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.text.len() {
            self.fill()?;
        }
        let text = &self.text[self.used..];
        let len = text.len().min(out.len());
        out[..len].copy_from_slice(&text[..len]);
        self.used += len;
        Ok(len)
    }
}

/// Moves whole characters from `raw` to `text`, and writes other bytes as `%XX`.
fn utf8(raw: &mut Vec<u8>, text: &mut Vec<u8>, is_last: bool) {
    let mut rest = &raw[..];
    while !rest.is_empty() {
        let (good, bad) = match std::str::from_utf8(rest) {
            Ok(_) => (rest.len(), 0),
            // The next bytes may end this character.
            Err(why) if why.error_len().is_none() && !is_last => {
                text.extend(&rest[..why.valid_up_to()]);
                rest = &rest[why.valid_up_to()..];
                break;
            }
            Err(why) => (why.valid_up_to(), why.error_len().unwrap_or(1)),
        };
        text.extend(&rest[..good]);
        for byte in &rest[good..good + bad] {
            text.extend(format!("%{byte:02X}").as_bytes());
        }
        rest = &rest[good + bad..];
    }
    let left = rest.len();
    raw.drain(..raw.len() - left);
}

/// Moves whole characters from `raw` to `text`.
fn utf16(raw: &mut Vec<u8>, text: &mut Vec<u8>, is_big: bool) {
    let unit = if is_big {
        u16::from_be_bytes
    } else {
        u16::from_le_bytes
    };
    let (pairs, _) = raw.as_chunks::<2>();
    let mut units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    // The next bytes may have the second half of a character.
    if units.last().is_some_and(|unit| unit & 0xfc00 == 0xd800) {
        units.pop();
    }
    for char in char::decode_utf16(units.iter().copied()) {
        let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
        text.extend(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
    raw.drain(..units.len() * 2);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hands out a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(out.len()).min(self.0.len());
            out[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn read(bytes: &[u8], step: usize) -> String {
        let mut text = String::new();
        Utf8::new(Slow(bytes, step))
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn a_byte_order_mark_tells_the_charset_and_other_bytes_are_escaped() {
        let units = |bytes: fn(u16) -> [u8; 2]| {
            "\u{feff}a🦀é"
                .encode_utf16()
                .flat_map(bytes)
                .collect::<Vec<_>>()
        };
        for (bytes, text) in [
            ("\u{feff}aé".as_bytes().to_vec(), "aé"),
            (units(u16::to_le_bytes), "a🦀é"),
            (units(u16::to_be_bytes), "a🦀é"),
            (b"caf\xe9 \xe2\x82".to_vec(), "caf%E9 %E2%82"),
            (Vec::new(), ""),
            (b"\xff".to_vec(), "%FF"),
        ] {
            for step in [1, 2, 3, 100] {
                assert_eq!(read(&bytes, step), text);
            }
        }
    }

    proptest! {
        #[test]
        fn the_text_of_any_bytes_does_not_depend_on_their_parts(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            step in 1_usize..9,
        ) {
            prop_assert_eq!(read(&bytes, step), read(&bytes, 1000));
        }
    }
}
