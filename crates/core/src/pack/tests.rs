use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{pack, unpack};
use crate::Timestamp;

/// All types of which a state consists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct All {
    bits: [bool; 3],
    small: (u8, u16, u32, u64),
    signed: (i8, i16, i32, i64),
    floats: (f32, f64),
    at: [Timestamp; 3],
    some: Option<Box<Shape>>,
    list: Vec<Row>,
    short: SmallVec<[Shape; 1]>,
    nothing: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    at: Timestamp,
    count: u32,
    off: i64,
    set: bool,
    share: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Of(u64),
    Pair(u8, Option<Timestamp>),
    Named { rows: Vec<Row> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

fn time() -> impl Strategy<Value = Timestamp> {
    let micros = prop_oneof![
        4 => 1_800_000_000_000_000..1_800_000_100_000_000_u64,
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ];
    micros.prop_map(Timestamp::from_micros)
}

fn row() -> impl Strategy<Value = Row> {
    let parts = (
        time(),
        any::<u32>(),
        any::<i64>(),
        any::<bool>(),
        any::<f32>(),
    );
    parts.prop_map(|(at, count, off, set, share)| Row {
        at,
        count,
        off,
        set,
        share,
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Point),
        any::<u64>().prop_map(Shape::Of),
        (any::<u8>(), proptest::option::of(time())).prop_map(|(n, at)| Shape::Pair(n, at)),
        proptest::collection::vec(row(), 0..4).prop_map(|rows| Shape::Named { rows }),
    ]
}

prop_compose! {
    fn all()(
        bits: [bool; 3],
        small: (u8, u16, u32, u64),
        signed: (i8, i16, i32, i64),
        floats: (f32, f64),
        at in [time(), time(), time()],
        some in proptest::option::of(shape().prop_map(Box::new)),
        list in proptest::collection::vec(row(), 0..20),
        short in proptest::collection::vec(shape(), 0..6),
    ) -> All {
        All { bits, small, signed, floats, at, some, list, short: short.into(), nothing: Unit }
    }
}

fn packed<T: Serialize>(value: &T) -> Vec<u8> {
    pack(value, Vec::new()).unwrap()
}

proptest! {
    #[test]
    fn what_is_read_back_is_what_was_written(all in all()) {
        prop_assert_eq!(unpack::<All>(&packed(&all)), Ok(all));
    }

    /// Any process that writes to the engine may choose the bytes.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        _ = unpack::<All>(&bytes);
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused(all in all(), keep: proptest::sample::Index) {
        let mut bytes = packed(&all);
        let cut = &bytes[..keep.index(bytes.len())];
        prop_assert!(unpack::<All>(cut).is_err());
        bytes.push(0);
        prop_assert!(unpack::<All>(&bytes).is_err());
    }
}

#[test]
fn a_list_that_cannot_be_there_is_not_reserved() {
    let mut bytes = vec![0x80];
    bytes.extend([0xff; 9]);
    assert!(unpack::<Vec<u8>>(&bytes).is_err());
}

#[test]
fn nothing_takes_bits() {
    let nothing = ([0_u16; 30], [None::<u64>; 30], [false; 20], 0.0_f64);
    assert_eq!(packed(&nothing).len(), (30 + 30 + 20 + 1_usize).div_ceil(8));
}

#[test]
fn what_goes_on_as_before_takes_bits() {
    let rows = |count: u64| -> Vec<(Timestamp, u64)> {
        let row = |i| {
            (
                Timestamp::from_micros(1_800_000_000_000_000 + i * 211_039),
                7 * i,
            )
        };
        (0..count).map(row).collect()
    };
    assert_eq!(packed(&rows(66)).len(), packed(&rows(2)).len() + 128 / 8);
}

#[test]
fn a_time_takes_as_much_as_its_distance() {
    let at = |micros: u64| Timestamp::from_micros(1_800_000_000_000_000 + micros);
    let apart = |micros| packed(&(at(0), Timestamp::NEVER, Timestamp::ZERO, at(micros))).len();
    assert_eq!(apart(1_000) - apart(0), 1);
    assert_eq!(apart(1_000_000) - apart(0), 2);
}

#[test]
fn text_is_refused_not_lost() {
    assert!(pack(&"text", Vec::new()).is_err());
    assert!(unpack::<String>(&[0]).is_err());
}
