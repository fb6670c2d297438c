//! The hosts of one node process: express-rate-limit with each kind of headers, a host with random
//! errors, and a host that blocks.

use std::path::Path;

use super::{Kind, Place, repository};
use crate::process::{self, Server};

pub(super) const HOSTS: &[(&str, Kind)] = &[
    ("express-20in10-draft8", in_ten_seconds(20)),
    ("express-20in10-draft7", in_ten_seconds(20)),
    ("express-20in10-legacy", in_ten_seconds(20)),
    ("express-30in10-bare", in_ten_seconds(30)),
    ("express-noisy", Kind::Noisy { every: 33 }),
];

/// The host that only the set of the profile `crawler` has.
pub(super) const BLOCKS: (&str, Kind) = (
    "express-blocks",
    Kind::Blocks {
        per_second: 20,
        for_ms: 30_000,
    },
);

/// The host that only the set of the profile `api` has.
pub(super) const QUOTA: (&str, Kind) = ("express-100in10-draft6", in_ten_seconds(100));

const fn in_ten_seconds(requests: u32) -> Kind {
    Kind::FixedWindow {
        requests,
        window_ms: 10_000,
    }
}

pub(super) fn start(folder: &Path, places: &[Place]) -> Server {
    let express = repository().join("tests/servers/express");
    process::demand(&express.join("node_modules/express-rate-limit"));
    let script = express.join("server.js");
    let script = script.to_str().expect("a repository with a plain name");
    Server::start(
        "express",
        folder,
        &process::tool("node"),
        [script, &super::as_json(places)],
    )
}
