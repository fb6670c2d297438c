//! The hosts of one Python process: the three strategies of Flask-Limiter.

use std::path::Path;

use super::{Kind, Place, repository};
use crate::process::{self, Server};

pub(super) const HOSTS: &[(&str, Kind)] = &[
    (
        "flask-5in1-fixed",
        Kind::FixedWindow {
            requests: 5,
            window_ms: 1000,
        },
    ),
    (
        "flask-20in10-moving",
        Kind::MovingWindow {
            requests: 20,
            window_ms: 10_000,
        },
    ),
    (
        "flask-20in10-counter",
        Kind::SlidingCounter {
            requests: 20,
            window_ms: 10_000,
        },
    ),
];

pub(super) fn start(folder: &Path, places: &[Place]) -> Server {
    let python = repository().join(".venv/bin/python");
    process::demand(&python);
    let script = repository().join("tests/servers/flask/app.py");
    let script = script.to_str().expect("a repository with a plain name");
    Server::start("flask", folder, &python, [script, &super::as_json(places)])
}
