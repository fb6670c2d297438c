//! The hosts of one nginx: with `limit_req`, with `limit_conn`, and without a limit.

use std::fs;
use std::path::Path;

use super::{Kind, Place, repository};
use crate::process::{self, Server};

pub(super) const HOSTS: &[(&str, Kind)] = &[
    ("nginx-2rps", leaky(2, 0)),
    ("nginx-2rps-burst5", leaky(2, 5)),
    ("nginx-5rps-503", leaky(5, 2)),
    (
        "nginx-5rps-queue",
        Kind::LeakyQueue {
            per_second: 5,
            burst: 10,
        },
    ),
    ("nginx-10rps", leaky(10, 3)),
    (
        "nginx-4conn",
        Kind::InFlight {
            cap: 4,
            latency_ms: 300,
        },
    ),
    ("nginx-open", Kind::Open),
];

const fn leaky(per_second: u32, burst: u32) -> Kind {
    Kind::Leaky { per_second, burst }
}

/// Starts nginx. Each host has the pages 1 to `pages`.
pub(super) fn start(folder: &Path, places: &[Place], pages: u32) -> Server {
    let mut config = fs::read_to_string(repository().join("tests/servers/nginx/nginx.conf"))
        .expect("nginx.conf");
    for place in places {
        let hole = format!("@{}@", place.name);
        assert!(config.contains(&hole), "nginx.conf has no {hole}");
        config = config.replace(&hole, &place.address.to_string());
    }
    fs::write(folder.join("nginx.conf"), config).expect("the town's folder is writable");
    write_pages(&folder.join("site/page"), pages);

    let nginx = process::tool("nginx");
    let folder = folder
        .to_str()
        .expect("a temporary folder with a plain name");
    let args = ["-p", folder, "-c", "nginx.conf", "-e", "stderr"];
    Server::start("nginx", folder.as_ref(), &nginx, args)
}

/// Writes the pages as files, because nginx answers a `return` before it checks its limits.
fn write_pages(folder: &Path, pages: u32) {
    fs::create_dir_all(folder).expect("the town's folder is writable");
    for n in 1..=pages {
        let line = format!("<p>Page {n} of a host with a limit, about two kilobytes long.</p>\n");
        let page = format!("<!doctype html>\n{}", line.repeat(33));
        fs::write(folder.join(n.to_string()), page).expect("the town's folder is writable");
    }
}
