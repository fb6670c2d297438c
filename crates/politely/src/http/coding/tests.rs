//! Tests of every coding: alone and in layers, whole and damaged, and cut into parts of any size.

use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
};
use http::{HeaderMap, HeaderValue, header::CONTENT_ENCODING};
use proptest::prelude::*;

use super::*;

fn headers(fields: &[&str]) -> HeaderMap {
    let fields = fields.iter();
    let values = fields.map(|field| HeaderValue::from_bytes(field.as_bytes()).unwrap());
    values.map(|value| (CONTENT_ENCODING, value)).collect()
}

fn level() -> FlateEncoderParams {
    compression_codecs::core::Level::Default.into()
}

fn packed(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        "gzip" | "x-gzip" => Box::new(GzipEncoder::new(level())),
        "deflate" => Box::new(ZlibEncoder::new(level())),
        "raw" => Box::new(DeflateEncoder::new(level())),
        "br" => Box::new(BrotliEncoder::new(
            compression_codecs::brotli::params::EncoderParams::default(),
        )),
        "zstd" => Box::new(ZstdEncoder::new(1)),
        other => panic!("{other}"),
    };
    let mut all = Vec::new();
    let mut block = vec![0; 1 << 16];
    let mut input = PartialBuffer::new(bytes);
    while !input.unwritten().is_empty() {
        let mut output = WriteBuffer::new_initialized(&mut block);
        encoder.encode(&mut input, &mut output).unwrap();
        all.extend_from_slice(output.written());
    }
    loop {
        let mut output = WriteBuffer::new_initialized(&mut block);
        let done = encoder.finish(&mut output).unwrap();
        all.extend_from_slice(output.written());
        if done {
            return all;
        }
    }
}

/// Decodes `body` in parts of `size` bytes.
fn in_parts(fields: &[&str], body: &[u8], size: usize) -> Result<Vec<u8>, CodingError> {
    let mut decoder = Decoder::new(&Codings::of(&headers(fields))?, 1 << 30);
    let mut whole = Vec::new();
    let mut take = |part: &[u8]| {
        whole.extend_from_slice(part);
        true
    };
    for part in body.chunks(size) {
        decoder.push(part, &mut take)?;
    }
    decoder.end(&mut take)?;
    Ok(whole)
}

const EACH: [(&str, &str); 5] = [
    ("gzip", "gzip"),
    ("deflate", "deflate"),
    ("deflate", "raw"),
    ("br", "br"),
    ("zstd", "zstd"),
];

fn text() -> Vec<u8> {
    let numbers = (0..30_000_u32).map(|n| n.wrapping_mul(2_654_435_761) >> 20);
    numbers.flat_map(|n| format!("{n} ").into_bytes()).collect()
}

#[test]
fn each_coding_comes_out_whole_however_it_is_cut() {
    let text = text();
    for (name, how) in EACH {
        let body = packed(how, &text);
        assert!(body.len() < text.len());
        for size in [1, 2, 3, 1000, body.len()] {
            assert_eq!(
                in_parts(&[name], &body, size).unwrap(),
                text,
                "{how}, {size}"
            );
        }
    }
}

#[test]
fn names_are_read_in_any_case_in_lists_and_in_several_fields() {
    let (once, twice) = (
        packed("gzip", b"page"),
        packed("gzip", &packed("gzip", b"page")),
    );
    for fields in [
        &["GZIP"][..],
        &["GZip"],
        &["x-gzip"],
        &["X-GZIP"],
        &["gzip, identity"],
        &["Identity,gzip"],
        &[" gzip\t"],
        &[", gzip ,,"],
        &["", "gzip"],
    ] {
        assert_eq!(in_parts(fields, &once, 7).unwrap(), b"page", "{fields:?}");
    }
    for fields in [&["gzip, gzip"][..], &["gzip", "gzip"], &["gzip,x-gzip"]] {
        assert_eq!(in_parts(fields, &twice, 7).unwrap(), b"page", "{fields:?}");
    }
    assert!(Codings::of(&headers(&["identity"])).unwrap().is_identity());
    assert_eq!(in_parts(&[], b"as it is", 3).unwrap(), b"as it is");
}

#[test]
fn codings_are_undone_in_reverse_order() {
    let body = packed("zstd", &packed("br", &packed("deflate", b"page")));
    assert_eq!(
        in_parts(&["deflate, br", "zstd"], &body, 5).unwrap(),
        b"page"
    );
}

#[test]
fn a_name_that_is_no_coding_leaves_the_body_as_it_is() {
    for name in [
        "",
        "identity",
        "utf-8",
        "UTF-8",
        "none",
        "binary",
        "iso-8859-1",
        "text/html",
        "8bit",
        "foo",
        "f\u{e9}",
        "gzip gzip",
    ] {
        let codings = Codings::of(&headers(&[name])).unwrap();
        assert!(codings.is_identity(), "{name}");
    }
    let gzip = Codings::of(&headers(&["utf-8, gzip;q=1", "none"])).unwrap();
    assert_eq!(gzip.iter().collect::<Vec<_>>(), [Coding::Gzip]);
}

#[test]
fn a_coding_that_cannot_be_undone_and_too_many_are_errors() {
    for (name, known) in [
        ("compress", "compress"),
        ("X-Compress", "x-compress"),
        ("dcb", "dcb"),
    ] {
        let unsupported = Codings::of(&headers(&["gzip", name])).unwrap_err();
        assert_eq!(unsupported, CodingError::Unsupported(known));
    }
    let five = vec!["gzip"; LAYERS_MAX];
    assert!(Codings::of(&headers(&five)).is_ok());
    let six = vec!["gzip"; LAYERS_MAX + 1];
    assert_eq!(Codings::of(&headers(&six)), Err(CodingError::TooMany));
    let told = CodingError::Unsupported("exi").to_string();
    assert!(
        told.starts_with("cannot decode content coding \"exi\"; "),
        "{told}"
    );
}

#[test]
fn bytes_after_the_end_are_ignored() {
    let zeros = [0; 600];
    for (name, how) in EACH {
        let body = packed(how, b"page");
        for after in [
            &b"\n"[..],
            b"garbage that is no stream",
            &zeros,
            b"\x1f",
            b"\x1f\x8b",
            b"\x1f\x8bgarbage",
            b"\x1f\x8b\x08\xff and so on",
            b"\x28\xb5",
        ] {
            let all = [&body[..], after].concat();
            for size in [1, 3, all.len()] {
                assert_eq!(
                    in_parts(&[name], &all, size).unwrap(),
                    b"page",
                    "{how}: {after:?}"
                );
            }
        }
    }
}

#[test]
fn members_and_frames_in_a_row_are_one_body() {
    for how in ["gzip", "zstd"] {
        let body = [
            packed(how, b"one "),
            packed(how, b"two"),
            b"\0\0\0".to_vec(),
        ]
        .concat();
        for size in [1, 4, body.len()] {
            assert_eq!(in_parts(&[how], &body, size).unwrap(), b"one two");
        }
    }
}

#[test]
fn a_stream_that_is_cut_off_is_an_error_and_nothing_at_all_is_not() {
    let text = text();
    for (name, how) in EACH {
        let body = packed(how, &text);
        for left in [1, 2, body.len() / 2, body.len() - 1] {
            let cut = in_parts(&[name], &body[..left], 1000);
            assert!(
                matches!(cut, Err(CodingError::CutOff(_))),
                "{how}, {left}: {cut:?}"
            );
        }
        assert_eq!(in_parts(&[name], b"", 1).unwrap(), b"");
    }
    // The second member belongs to the page too.
    let torn = [
        packed("gzip", b"one"),
        packed("gzip", b"two")[..12].to_vec(),
    ]
    .concat();
    assert!(in_parts(&["gzip"], &torn, 5).is_err());
}

#[test]
fn a_wrong_checksum_and_plain_text_are_errors() {
    for (name, how, sum) in [("gzip", "gzip", 6), ("deflate", "deflate", 2)] {
        let mut body = packed(how, b"a page");
        let at = body.len() - sum;
        body[at] ^= 1;
        let wrong = in_parts(&[name], &body, 100);
        assert!(
            matches!(wrong, Err(CodingError::Damaged(_))),
            "{how}: {wrong:?}"
        );
    }
    for name in ["gzip", "deflate", "br", "zstd"] {
        assert!(
            in_parts(&[name], b"<p>this is plain text</p>", 100).is_err(),
            "{name}"
        );
    }
}

/// Returns the number of bytes decoded from `body` until the taker has more than `max`, and the
/// result.
fn taken(fields: &[&str], body: &[u8], max: usize) -> (usize, Result<Flow, CodingError>) {
    let codings = Codings::of(&headers(fields)).unwrap();
    let mut decoder = Decoder::new(&codings, max as u64);
    let mut bytes = 0;
    let flow = decoder.push(body, &mut |part| {
        bytes += part.len();
        bytes <= max
    });
    (bytes, flow)
}

#[test]
fn a_bomb_is_dropped_within_a_block_of_the_limit() {
    let zeros = vec![0; 50_000_000];
    for (name, how) in EACH {
        let (bytes, flow) = taken(&[name], &packed(how, &zeros), 100_000);
        assert_eq!(flow, Ok(Flow::Enough), "{how}");
        assert!(bytes <= 100_000 + 32 * 1024, "{how}: {bytes}");
    }
    let layers = packed("gzip", &packed("gzip", &packed("gzip", &zeros)));
    let (bytes, flow) = taken(&["gzip, gzip, gzip"], &layers, 100_000);
    assert_eq!(flow, Ok(Flow::Enough));
    assert!(bytes <= 100_000 + 32 * 1024, "{bytes}");
}

#[test]
fn a_bomb_that_yields_nothing_ends_as_well() {
    // Endless empty stored blocks, packed: each byte on the wire unpacks to a thousand bytes of
    // them, and they decode to nothing.
    let endless = packed("gzip", &[0, 0, 0, 0xff, 0xff].repeat(2_000_000));
    let (bytes, flow) = taken(&["deflate, gzip"], &endless, 100_000);
    assert_eq!((bytes, flow), (0, Err(CodingError::TooLong)));
    // The bytes after the inner stream are not unpacked at all.
    let after = [packed("gzip", b"page"), vec![0; 50_000_000]].concat();
    let (bytes, flow) = taken(&["gzip, gzip"], &packed("gzip", &after), 100_000);
    assert_eq!((bytes, flow), (4, Ok(Flow::Over)));
}

#[test]
fn a_whole_body_is_bounded() {
    let body = packed("br", &[b'x'; 1000]);
    assert_eq!(decode(&headers(&["br"]), &body, 1000).unwrap().len(), 1000);
    assert_eq!(
        decode(&headers(&["br"]), &body, 999),
        Err(CodingError::TooLong)
    );
    assert_eq!(decode(&headers(&[]), b"plain", 5).unwrap(), b"plain");
}

proptest! {
    #[test]
    fn no_field_and_no_bytes_make_it_panic(
        fields in proptest::collection::vec("[a-zA-Z, ]{0,12}|gzip|deflate|br|zstd|x-gzip", 0..7),
        body in proptest::collection::vec(any::<u8>(), 0..400),
        size in 1_usize..50,
    ) {
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        let cut = in_parts(&fields, &body, size);
        // The layer that first notices the damage depends on the parts.
        prop_assert_eq!(cut.ok(), in_parts(&fields, &body, body.len().max(1)).ok());
    }

    #[test]
    fn what_was_packed_comes_out(body in proptest::collection::vec(any::<u8>(), 0..3000), size in 1_usize..200) {
        for (name, how) in EACH {
            prop_assert_eq!(in_parts(&[name], &packed(how, &body), size).unwrap(), &body[..]);
        }
    }
}
