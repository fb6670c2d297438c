//! `politely --version`, `politely completions` and `politely man`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::run::{politely, run};

/// All commands, from the list in `--help`.
fn commands() -> Vec<String> {
    let help = run(politely().arg("--help")).out;
    let (_, list) = help.split_once("Commands:\n").expect("a list");
    let (list, _) = list.split_once("\n\n").expect("its end");
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    list.lines().filter_map(first).collect()
}

#[test]
fn the_version_names_the_commit_and_the_features() {
    let said = run(politely().arg("--version"));
    assert_eq!(said.code, 0);
    let first = format!("politely {}\n", env!("CARGO_PKG_VERSION"));
    assert!(said.out.starts_with(&first), "{}", said.out);
    assert!(said.out.contains("\ncommit: "), "{}", said.out);
    assert!(
        said.out.contains("\nfeatures: coordinator, redis"),
        "{}",
        said.out
    );
    assert_eq!(
        run(politely().arg("-V")).out,
        first,
        "the short form is one line"
    );
}

#[test]
fn each_shell_gets_completions_for_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(politely().args(["completions", shell]));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{shell}");
        for command in commands() {
            assert!(said.out.contains(&command), "{shell}: {command}");
        }
        assert!(
            said.out.contains("--state") || said.out.contains("state"),
            "{shell}"
        );
    }
    assert_eq!(run(politely().args(["completions", "ksh"])).code, 2);
}

#[test]
fn bash_accepts_its_completions() {
    let text = run(politely().args(["completions", "bash"])).out;
    let asked = "COMP_WORDS=(politely se); COMP_CWORD=1; _politely politely se politely; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash runs");
    let mut stdin = bash.stdin.take().expect("its input");
    writeln!(stdin, "{text}\n{asked}").expect("bash reads");
    drop(stdin);
    let output = bash.wait_with_output().expect("bash ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "serve");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("man1");
    let said = run(politely().arg("man").arg("--dir").arg(&dir));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for command in commands() {
        let page = dir.join(format!("politely-{command}.1"));
        assert!(page.exists() || command == "help", "{}", page.display());
    }
    let pages = std::fs::read_dir(&dir).expect("the pages");
    for page in pages {
        let name = page.expect("a page").file_name();
        assert!(!name.to_string_lossy().contains("help"), "{name:?}");
    }
    let fetch = run(politely().args(["man", "fetch"])).out;
    assert!(fetch.contains("Examples"), "{fetch}");
    let serve = run(politely().args(["man", "serve"])).out;
    assert!(serve.contains(".TH politely-serve 1"), "{serve}");
    assert!(serve.contains("Exit codes"), "{serve}");
    let wrong = run(politely().args(["man", "sevre"]));
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("\"sevre\"; choose one of fetch"),
        "{}",
        wrong.err
    );
}
