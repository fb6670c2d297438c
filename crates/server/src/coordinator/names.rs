//! The name of a permit on the wire.
//!
//! ```text
//! 10000000001-pVnBf0cW2xq1ZkTd                                 one slot
//! 10000000001x8-pVnBf0cW2xq1ZkTd                               eight slots
//! 800000000001-pVnBf0cW2xq1ZkTd.65a1f3c200000007.example.com   of a shared key
//! ```
//!
//! A name consists of the number, the count of slots if it is not 1, and the signature of
//! `signer.rs`. A coordinator that shares an engine adds the leases and their keys. If it stops,
//! any other coordinator of the engine can adopt the permit.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use politely::core::gate::LeaseId;
use politely::core::key::Key;
use politely::policy::RULE_KEYS_MAX;
use politely_api::wire::ALSO_MAX;

/// The characters that are escaped in a key: a name must fit into the path of a URL, and must not
/// contain a comma.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The length of a signature in a name, in characters.
const TEXT_LEN: usize = MAC_LEN / 3 * 4;
/// The room for the text of a name without leases.
const TEXT_CAPACITY: usize = 40;
/// The most keys of a permit: its own, those of `also`, those of its rule, and that of a part of
/// its host.
pub(crate) const KEYS_MAX: usize = 2 + ALSO_MAX + RULE_KEYS_MAX;
/// The longest name: as many keys of 520 bytes, all of which may be escaped.
const LEN_MAX: usize = 24 << 10;

/// The length of a signature, in bytes.
pub(crate) const MAC_LEN: usize = 12;
/// The signature in a name.
pub(crate) type Mac = [u8; MAC_LEN];

/// The number of one granted slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number(pub(crate) u64);

/// The name of a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) number: Number,
    /// The count of slots, which have consecutive numbers from `number` on. The signature covers
    /// it, so that a name gives no access to the next permit.
    pub(crate) slots: u16,
    pub(crate) mac: Option<Mac>,
    /// The leases and their keys. The first key receives the outcome. Empty if keys are not shared.
    pub(crate) leases: Vec<(Key, LeaseId)>,
}

/// The error of a text that is not the name of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a permit of this coordinator; send it as it was granted")]
pub(crate) struct NoName;

impl Name {
    /// Returns the name as text. It does the same as [`ToString`], with one allocation.
    pub(crate) fn to_text(&self) -> String {
        use fmt::Write;
        let mut text = String::with_capacity(TEXT_CAPACITY);
        let written = write!(text, "{self}");
        debug_assert!(written.is_ok(), "a string takes any text");
        text
    }

    /// Returns the name of slot `slot` of the permit, counted from 0. Returns `None` if the permit
    /// has no such slot.
    pub(crate) fn later(mut self, slot: u16) -> Option<Self> {
        if slot >= self.slots {
            return None;
        }
        self.slots = 1;
        self.mac = None;
        let slot = u64::from(slot);
        self.number.0 = self.number.0.saturating_add(slot);
        for (_, lease) in &mut self.leases {
            lease.0 = lease.0.saturating_add(slot);
        }
        Some(self)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)?;
        if self.slots != 1 {
            write!(f, "x{}", self.slots)?;
        }
        if let Some(mac) = &self.mac {
            let mut text = [0; TEXT_LEN];
            let written = BASE64_URL_SAFE_NO_PAD.encode_slice(mac, &mut text);
            let text = text.get(..written.map_err(|_| fmt::Error)?);
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            write!(f, "-{}", text.ok_or(fmt::Error)?)?;
        }
        for (i, (key, lease)) in self.leases.iter().enumerate() {
            let key = utf8_percent_encode(key.as_str(), ESCAPED);
            let mark = if i == 0 { '.' } else { ',' };
            write!(f, "{mark}{:x}.{key}", lease.0)?;
        }
        Ok(())
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        if text.len() > LEN_MAX {
            return Err(NoName);
        }
        let (number, leases) = match text.split_once('.') {
            Some((number, leases)) => (number, Some(leases)),
            None => (text, None),
        };
        let leases: Result<Vec<_>, _> = leases
            .into_iter()
            .flat_map(|leases| leases.split(','))
            .take(KEYS_MAX + 1)
            .map(lease)
            .collect();
        let (number, mac) = match number.split_once('-') {
            Some((number, mac)) => (number, Some(signature(mac)?)),
            None => (number, None),
        };
        let (number, slots) = match number.split_once('x') {
            Some((number, slots)) => (number, slots.parse().map_err(|_| NoName)?),
            None => (number, 1),
        };
        let name = Self {
            number: Number(hex(number)?),
            slots,
            mac,
            leases: leases?,
        };
        if name.leases.len() > KEYS_MAX {
            return Err(NoName);
        }
        Ok(name)
    }
}

fn lease(text: &str) -> Result<(Key, LeaseId), NoName> {
    let (lease, key) = text.split_once('.').ok_or(NoName)?;
    let key = percent_decode_str(key).decode_utf8().map_err(|_| NoName)?;
    let key = Key::parse(&key).map_err(|_| NoName)?;
    Ok((key, LeaseId(hex(lease)?)))
}

fn signature(text: &str) -> Result<Mac, NoName> {
    let mut mac = [0; MAC_LEN];
    if text.len() != TEXT_LEN {
        return Err(NoName);
    }
    match BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut mac) {
        Ok(MAC_LEN) => Ok(mac),
        _ => Err(NoName),
    }
}

fn hex(text: &str) -> Result<u64, NoName> {
    u64::from_str_radix(text, 16).map_err(|_| NoName)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(number: u64, leases: &[(&str, u64)]) -> Name {
        let lease = |(key, lease): &(&str, u64)| (Key::parse(key).unwrap(), LeaseId(*lease));
        Name {
            number: Number(number),
            slots: 1,
            mac: None,
            leases: leases.iter().map(lease).collect(),
        }
    }

    #[test]
    fn it_is_short_and_fit_for_a_url() {
        assert_eq!(name(0x80_0000_0001, &[]).to_string(), "8000000001");
        let one = name(1, &[("example.com", 7)]);
        assert_eq!(one.to_string(), "1.7.example.com");
        let odd = name(
            1,
            &[("[::1]:8080", 2), ("custom/a,b.c é%", 3), ("a.example", 4)],
        );
        let text = "1.2.%5B%3A%3A1%5D%3A8080,3.custom%2Fa%2Cb.c%20%C3%A9%25,4.a.example";
        assert_eq!((odd.to_string().as_str(), text.parse()), (text, Ok(odd)));
    }

    #[test]
    fn a_later_departure_has_the_next_of_each() {
        let mut first = name(1, &[("a.example", 7), ("b.example", 9)]);
        first.slots = 3;
        let third = name(3, &[("a.example", 9), ("b.example", 11)]);
        assert_eq!(first.clone().later(2), Some(third));
        assert_eq!(first.later(3), None, "that is another permit");
    }

    #[test]
    fn the_longest_is_read_back() {
        let key = Key::egress_host(&"/".repeat(253), &"a.".repeat(126)).unwrap();
        let longest = Name {
            number: Number(u64::MAX),
            slots: u16::MAX,
            mac: Some([255; MAC_LEN]),
            leases: vec![(key, LeaseId(u64::MAX)); KEYS_MAX],
        };
        assert_eq!(longest.to_string().parse(), Ok(longest));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let too_many = format!("1.{}", ["1.a.example"; KEYS_MAX + 1].join(","));
        let long = format!("1.1.custom%2F{}", "a".repeat(LEN_MAX));
        for text in [
            "",
            "g",
            "1.",
            "1.1",
            "1.1.",
            "1.x.a.example",
            "1.1.a..b",
            "1.1.%ff",
            "1.1.a.example,",
            "1-",
            "1-short",
            "1-AAAAAAAAAAAAAAAAA",
            "1-AAAAAAAAAAAAAAA=",
            "1x",
            "1x99999",
            "x2",
            &too_many,
            &long,
        ] {
            assert_eq!(text.parse::<Name>(), Err(NoName), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_none(text in "[0-9a-f.,%/x-]{0,40}|\\PC{0,40}") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }

        #[test]
        fn every_name_is_read_back(number: u64, lease: u64, slots: u16, mac: Option<[u8; MAC_LEN]>, texts in prop::collection::vec("\\PC{1,60}", 0..9)) {
            let keys = texts.iter().filter_map(|text| Key::custom(text).ok());
            let leases = keys.enumerate().map(|(i, key)| (key, LeaseId(lease ^ i as u64)));
            let name = Name { number: Number(number), slots, mac, leases: leases.collect() };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}
