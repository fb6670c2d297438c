//! Decodes any body with any Content-Encoding fields, one per line. Nothing panics, the size limit
//! holds, and the result does not depend on how the body is cut into parts.
#![no_main]

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use politely::coding::{Codings, Decoder, Flow, LAYERS_MAX, decode};

const BYTES_MAX: usize = 1 << 20;

fuzz_target!(|input: (&[u8], &[u8], u8)| {
    let (fields, body, size) = input;
    let mut headers = HeaderMap::new();
    for field in fields.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(field) {
            headers.append(CONTENT_ENCODING, value);
        }
    }
    let Ok(codings) = Codings::of(&headers) else {
        return;
    };
    assert!(codings.iter().count() <= LAYERS_MAX);
    let whole = decode(&headers, body, BYTES_MAX);
    let mut decoder = Decoder::new(&codings, BYTES_MAX as u64);
    let mut out = Vec::new();
    let mut take = |part: &[u8]| {
        out.extend_from_slice(part);
        out.len() <= BYTES_MAX
    };
    let mut ended = Ok(Flow::More);
    for part in body.chunks(usize::from(size).max(1)) {
        ended = decoder.push(part, &mut take);
        if !matches!(ended, Ok(Flow::More | Flow::Over)) {
            break;
        }
    }
    if matches!(ended, Ok(Flow::More | Flow::Over)) {
        ended = decoder.end(&mut take);
    }
    assert!(out.len() <= BYTES_MAX + 32 * 1024);
    let in_parts = ended.ok().filter(|flow| *flow != Flow::Enough).map(|_| out);
    assert_eq!(whole.ok(), in_parts);
});
