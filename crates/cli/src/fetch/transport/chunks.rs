//! Follows the chunks of a body, and says where the CR of a line is missing. See [`super::repair`].

use super::repair::Edit;

/// The place of the next byte in a body of chunks (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    part: Part,
    /// Whether the last byte was a CR.
    has_cr: bool,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// The line with the size, or its extensions.
    Size {
        size: u64,
        /// Whether the digits are over.
        is_read: bool,
    },
    /// This many bytes of a chunk.
    Data(u64),
    /// The end of the line after a chunk.
    DataEnd,
    /// A line of the trailer, with this many bytes so far.
    Trailer(u64),
    /// The end, or a body that is no list of chunks.
    Over,
}

impl Part {
    const NEXT: Self = Self::Size {
        size: 0,
        is_read: false,
    };
}

impl Chunks {
    pub(super) const BEGIN: Self = Self {
        part: Part::NEXT,
        has_cr: false,
    };

    /// Takes the whole data at the start of `bytes`, and returns its length.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> usize {
        match &mut self.part {
            Part::Over => bytes.len(),
            Part::Data(left) => {
                let len = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= len as u64;
                if *left == 0 {
                    self.part = Part::DataEnd;
                }
                len
            }
            _ => 0,
        }
    }

    /// Takes a byte that is no data, and returns what becomes of it.
    pub(super) fn take(&mut self, byte: u8) -> Edit {
        let had_cr = std::mem::replace(&mut self.has_cr, byte == b'\r');
        if byte == b'\n' {
            self.part = self.part.after_line();
            return if had_cr { Edit::Keep } else { Edit::AddCr };
        }
        self.part = match self.part {
            Part::DataEnd if byte != b'\r' => Part::Over,
            Part::Trailer(len) if byte != b'\r' => Part::Trailer(len + 1),
            Part::Size { size, is_read } => match char::from(byte).to_digit(16) {
                Some(digit) if !is_read => match size.checked_mul(16) {
                    Some(size) => Part::Size {
                        size: size | u64::from(digit),
                        is_read,
                    },
                    None => Part::Over,
                },
                _ => Part::Size {
                    size,
                    is_read: true,
                },
            },
            part => part,
        };
        Edit::Keep
    }
}

impl Part {
    fn after_line(self) -> Self {
        match self {
            Self::Size { size: 0, .. } | Self::Trailer(1..) => Self::Trailer(0),
            Self::Size { size, .. } => Self::Data(size),
            Self::DataEnd => Self::NEXT,
            Self::Trailer(0) | Self::Data(_) | Self::Over => Self::Over,
        }
    }
}
