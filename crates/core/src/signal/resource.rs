//! The identity of a requested URL.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Identifies the URL of a request, so that the trouble of one URL can be told from the trouble of
/// its host.
///
/// It is the 64-bit FNV-1a hash of the URL without its fragment, the same on every machine. Two
/// URLs with one hash are treated as one URL: a failure of the second counts like a repeated
/// failure of the first. It is displayed as 16 hexadecimal digits, which [`Resource::of`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource(u64);

impl Resource {
    /// Identifies `url`, or any other text that names the requested resource.
    pub fn of(url: &str) -> Self {
        if url.len() == DIGITS && url.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Self(u64::from_str_radix(url, 16).unwrap_or_default());
        }
        let end = url.find('#').unwrap_or(url.len());
        Self(url.as_bytes()[..end].iter().fold(OFFSET, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(PRIME)
        }))
    }

    /// Returns half of the hash, for short lists.
    pub(crate) const fn short(self) -> u32 {
        (self.0 ^ (self.0 >> 32)) as u32
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Hexadecimal digits of a resource.
const DIGITS: usize = 16;
/// The constants of 64-bit FNV-1a (draft-eastlake-fnv).
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_no_part_of_a_resource() {
        let whole = Resource::of("https://example.com/a?b=c");
        assert_eq!(whole, Resource::of("https://example.com/a?b=c#top"));
        assert_ne!(whole, Resource::of("https://example.com/a?b=d"));
    }

    #[test]
    fn a_resource_is_read_back_from_its_digits() {
        let whole = Resource::of("https://example.com/a?b=c");
        assert_eq!(whole, Resource::of(&whole.to_string()));
        assert_ne!(whole, Resource::of("0123456789abcdeg"));
    }
}
