//! A state in few bytes: an engine holds a million of them.
//!
//! A form of serde's data model, as postcard's is, with four rules on top that say nothing of what is written but make most of it small:
//!
//! | what | is written as |
//! | --- | --- |
//! | nothing: zero, `None`, `false` | one bit |
//! | a time | how far it is from the time before |
//! | an element of a list | how far each of its numbers is from where the two elements before point |
//! | a float | its bits from the other end: those of 1.0 or 0.25 begin with zeros then, and zeros in front are not written |
//!
//! Bits are gathered: a byte of eight of them stands where the first of them was needed. Numbers have seven bits a byte, the ninth byte
//! has eight. Nothing is lost: what is read back is what was written, to the last bit.

mod read;
mod write;

pub(crate) use read::unpack;
pub(crate) use write::pack;

/// The name under which serde knows [`crate::Timestamp`].
const TIME: &str = "Timestamp";

/// A number's distance from another: small if it is near, on either side.
const fn distance(number: u64, from: u64) -> u64 {
    let off = number.wrapping_sub(from).cast_signed();
    ((off << 1) ^ (off >> 63)).cast_unsigned()
}

/// The number at such a distance.
const fn at_distance(distance: u64, from: u64) -> u64 {
    let off = (distance >> 1) ^ (distance & 1).wrapping_neg();
    from.wrapping_add(off)
}

/// The times written so far, of which only the last counts.
#[derive(Default)]
struct Times(u64);

impl Times {
    /// Zero is nothing, all else is told by its distance.
    fn code(&mut self, at: u64) -> u64 {
        let code = match (at, distance(at, self.0).wrapping_add(1)) {
            (0, _) => 0,
            // One distance is left without a code: zero does not need its own.
            (_, 0) => self.zero(),
            (_, code) => code,
        };
        self.pass(at);
        code
    }

    fn at(&mut self, code: u64) -> u64 {
        let at = match code {
            0 => 0,
            _ if code == self.zero() => at_distance(u64::MAX, self.0),
            _ => at_distance(code - 1, self.0),
        };
        self.pass(at);
        at
    }

    fn zero(&self) -> u64 {
        distance(0, self.0).wrapping_add(1)
    }

    /// What never was and what never will be is near no time.
    const fn pass(&mut self, at: u64) {
        if at != 0 && at != u64::MAX {
            self.0 = at;
        }
    }
}

/// The numbers of a list's last element, in order.
#[derive(Default)]
struct Row {
    columns: Vec<Column>,
    at: usize,
}

/// One of them, and by how much it is more than that of the element before.
struct Column {
    last: u64,
    step: u64,
}

impl Row {
    fn next(&mut self) -> Option<&mut Column> {
        self.at += 1;
        self.columns.get_mut(self.at - 1)
    }

    /// The first element's.
    fn begin(&mut self, number: u64) {
        self.columns.push(Column {
            last: number,
            step: 0,
        });
    }
}

impl Column {
    fn code(&mut self, number: u64) -> u64 {
        let code = distance(number, self.expected());
        self.pass(number);
        code
    }

    fn number(&mut self, code: u64) -> u64 {
        let number = at_distance(code, self.expected());
        self.pass(number);
        number
    }

    /// What it is if things go on as they did.
    const fn expected(&self) -> u64 {
        self.last.wrapping_add(self.step)
    }

    const fn pass(&mut self, number: u64) {
        self.step = number.wrapping_sub(self.last);
        self.last = number;
    }
}

#[cfg(test)]
mod tests;
