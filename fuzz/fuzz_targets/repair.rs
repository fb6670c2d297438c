//! Repairs any bytes as responses on one connection, in pieces. Nothing panics, and at most a CR is
//! added for each line end.
#![no_main]

#[path = "../../crates/cli/src/fetch/transport/chunks.rs"]
mod chunks;
#[path = "../../crates/cli/src/fetch/transport/head.rs"]
mod head;
#[path = "../../crates/cli/src/fetch/transport/repair.rs"]
mod repair;

use libfuzzer_sys::fuzz_target;

use crate::repair::Repair;

fuzz_target!(|given: (usize, &[u8])| {
    let (piece, bytes) = given;
    let mut repair = Repair::default();
    for response in bytes.split(|byte| *byte == 0xff) {
        repair.sent();
        for piece in response.chunks(piece % 64 + 1) {
            let mut bytes = piece.to_vec();
            let ends = piece.iter().filter(|byte| **byte == b'\n').count();
            if let Some(repaired) = repair.repair(&mut bytes) {
                assert!(repaired.len() <= piece.len() + ends);
            }
        }
    }
});
