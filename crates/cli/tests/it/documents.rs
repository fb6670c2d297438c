//! Tests that the documents are true: every command runs or says why not, and every anchor exists.
//!
//! A block of `sh`, `python` or `js` in a document is run, unless the line before it is a comment
//! `<!-- not run: REASON -->`. Each block names its language. The blocks of a document run in one
//! folder, in their order. A block of `js` may import the Node client. `http://127.0.0.1:7077` is
//! replaced by a coordinator, and `http://example.com/` by a host of this machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::node_client;
use super::tidy::{has_extension, texts};
use politely_testkit::process::Server;
use politely_testkit::repository;

const NOT_RUN: &str = "<!-- not run: ";
/// The longest time of a block.
const SECONDS_MAX: &str = "120";

/// Runs before each block. `politely serve` and `politely top` would not end.
const PREAMBLE: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null && wait || true' EXIT
politely() {
    case $1 in
        serve)
            shift
            command politely serve --bind 127.0.0.1:0 "$@" 2>serve.log &
            until grep -q 'politely: http' serve.log; do kill -0 $!; sleep 0.05; done
            ;;
        top) command politely top --once --coordinator "$POLITELY_COORDINATOR" ;;
        *) command politely "$@" ;;
    esac
}
"#;

/// A fenced block of a document.
struct Block {
    language: String,
    text: String,
    line: usize,
    /// Why it is not run.
    not_run: Option<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().map(|(_, line)| line);
            let body: Vec<&str> = body.take_while(|line| *line != "```").collect();
            let reason = before.strip_prefix(NOT_RUN);
            let reason = reason.and_then(|rest| rest.strip_suffix(" -->"));
            blocks.push(Block {
                language: language.to_owned(),
                text: body.join("\n"),
                line: at + 1,
                not_run: reason.map(str::to_owned),
            });
        }
        before = line;
    }
    blocks
}

/// A coordinator and a host of this machine, for all documents.
struct Place {
    coordinator: String,
    host: String,
    folder: TempDir,
    _processes: [Server; 2],
}

impl Place {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        node_client::compile();
        let packages = folder.path().join("node_modules");
        fs::create_dir(&packages).expect("a folder");
        symlink(repository().join("clients/node"), packages.join("politely")).expect("a link");
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let town = folder.path().join("town.json");
        let hosts = r#"{"hosts":[{"name":"shop","limit":{"kind":"none"},"pages":100}]}"#;
        fs::write(&town, hosts).expect("the town is written");
        let town = town.to_str().expect("UTF-8");
        let mut target = Server::start("target", folder.path(), program, ["target", town]);
        let args = ["serve", "--memory", "--bind=127.0.0.1:0", "--profile=api"];
        let mut serve = Server::start("serve", folder.path(), program, args);
        let line = serve.says("politely: http://");
        let coordinator = line.trim_start_matches("politely: ").trim().to_owned();
        let line = target.says("http://127.0.0.1");
        let host = line.split_whitespace().next().expect("a URL").to_owned();
        Self {
            coordinator,
            host,
            folder,
            _processes: [target, serve],
        }
    }

    /// Returns a block for this machine.
    fn here(&self, text: &str) -> String {
        let page = format!("{}/page/1", self.host);
        text.replace("http://127.0.0.1:7077", &self.coordinator)
            .replace(
                "localhost:7077",
                self.coordinator.trim_start_matches("http://"),
            )
            .replace("http://example.com/", &page)
    }

    /// Runs a block in `folder`. Returns its output if it fails.
    fn run(&self, block: &Block, folder: &Path) -> Result<(), String> {
        let text = self.here(&block.text);
        let binaries = Path::new(env!("CARGO_BIN_EXE_politely"))
            .parent()
            .expect("a folder");
        let venv = repository().join(".venv/bin");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", binaries.display(), venv.display());
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX);
        match block.language.as_str() {
            "sh" => command.args(["bash", "-c", &format!("{PREAMBLE}{text}")]),
            "js" => {
                let file = folder.join("block.mjs");
                fs::write(&file, &text).expect("the block is written");
                command.arg("node").arg(file)
            }
            _ => command.args(["python", "-W", "error", "-c", &text]),
        };
        let output = command
            .current_dir(folder)
            .env("PATH", path)
            .env("HOME", folder)
            .env("POLITELY_COORDINATOR", &self.coordinator)
            .env("PYTHONPATH", repository().join("clients/python/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("POLITELY_TOKEN")
            .stdin(Stdio::null())
            .output()
            .expect("timeout runs");
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(format!("{text}\n{}", String::from_utf8_lossy(&said)))
    }
}

fn documents() -> Vec<(PathBuf, String)> {
    texts(|path| has_extension(path, &["md"]))
}

#[test]
fn every_command_runs_or_says_why_not() {
    let place = Place::start();
    let mut wrong = String::new();
    let mut run = 0;
    for (path, text) in documents() {
        let folder = place
            .folder
            .path()
            .join(path.to_string_lossy().replace('/', "-"));
        fs::create_dir(&folder).expect("a folder");
        let pages = (0..20).map(|page| format!("{}/page/{page}", place.host));
        let urls = pages.collect::<Vec<_>>().join("\n");
        fs::write(folder.join("urls.txt"), urls).expect("a list");
        let packages = repository().join("tests/tools/node_modules");
        symlink(packages, folder.join("node_modules")).expect("a link");
        for block in blocks(&text) {
            let is_command = ["sh", "python", "js"].contains(&block.language.as_str());
            let at = format!("{}:{}", path.display(), block.line);
            if block.language.is_empty() {
                let _ = writeln!(
                    wrong,
                    "{at}: has no language; use `text` for what is no command"
                );
            }
            if let Some(reason) = &block.not_run {
                if reason.trim().is_empty() {
                    let _ = writeln!(wrong, "{at}: says not why it is not run");
                }
            } else if is_command {
                run += 1;
                if let Err(said) = place.run(&block, &folder) {
                    let _ = writeln!(wrong, "{at}: fails\n{said}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(run >= 8, "only {run} blocks were run");
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn anchors_lead_to_headings() {
    let mut wrong = String::new();
    for (path, text) in documents() {
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let Some((file, name)) = link.split_once('#') else {
                continue;
            };
            let is_document = file.is_empty() || has_extension(Path::new(file), &["md"]);
            if file.contains("://") || !is_document {
                continue;
            }
            let whole = repository().join(&path);
            let target = match file {
                "" => whole,
                file => whole.parent().expect("a folder").join(file),
            };
            let there = fs::read_to_string(target).unwrap_or_default();
            if !anchors(&there).contains(name) {
                let _ = writeln!(wrong, "{}: there is no {link}", path.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
