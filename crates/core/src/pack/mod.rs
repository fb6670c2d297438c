//! A compact serialisation of states, because an engine holds a million of them.
//!
//! It writes serde's data model, as postcard does. Four rules make most values small and lose
//! nothing:
//!
//! | value | written as |
//! | --- | --- |
//! | zero, `None`, `false` | one bit |
//! | a time | its distance from the time before |
//! | an element of a list | each number as its distance from the trend of two elements before |
//! | a float | its bytes in reverse order |
//!
//! Reversed floats such as 1.0 or 0.25 begin with zeros, and leading zeros are not written. Bits
//! are collected: a byte of eight bits stands where the first of them was needed. Numbers have
//! seven bits per byte; a ninth byte has eight. Reading returns exactly the value that was written.

mod read;
mod write;

pub(crate) use read::unpack;
pub(crate) use write::pack;

/// The name under which serde knows [`crate::Timestamp`].
const TIME: &str = "Timestamp";

/// Returns the distance of a number from another. It is small if they are near, on either side.
const fn distance(number: u64, from: u64) -> u64 {
    let off = number.wrapping_sub(from).cast_signed();
    ((off << 1) ^ (off >> 63)).cast_unsigned()
}

/// Returns the number at a distance from another.
const fn at_distance(distance: u64, from: u64) -> u64 {
    let off = (distance >> 1) ^ (distance & 1).wrapping_neg();
    from.wrapping_add(off)
}

/// The last time that was written.
#[derive(Default)]
struct Times(u64);

impl Times {
    /// Returns the code of a time: 0 for zero, otherwise the distance from the last time plus 1.
    fn code(&mut self, at: u64) -> u64 {
        let code = match (at, distance(at, self.0).wrapping_add(1)) {
            (0, _) => 0,
            // The largest distance overflows. It gets the code of the distance to zero, which is
            // unused.
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

    /// Zero and the end of time are near no other time, so they do not become the last time.
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

/// A number of the last element, and its difference from the same number of the element before.
struct Column {
    last: u64,
    step: u64,
}

impl Row {
    fn next(&mut self) -> Option<&mut Column> {
        self.at += 1;
        self.columns.get_mut(self.at - 1)
    }

    /// Adds a number of the first element.
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

    /// Returns the next number if the difference stays the same.
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
