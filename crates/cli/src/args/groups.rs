//! The groups of the flags of `fetch` in its help, and the flags that the short help shows.

use clap::Arg;

/// The groups, and the flags of each. The others are of the last group.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Input and output",
        &[
            "input",
            "config",
            "output",
            "row_header",
            "save",
            "warc",
            "warc_size",
            "state",
            "again",
            "since",
            "retry_failed",
            "repeat_posts",
            "summary",
            "max_pages",
            "max_bytes",
            "deadline",
            "include",
            "exclude",
            "sitemap",
            "sitemaps",
            "follow",
            "depth",
            "pages_per_host",
        ],
    ),
    (
        "Requests",
        &[
            "method",
            "header",
            "bearer_file",
            "basic_file",
            "data",
            "data_file",
            "idempotency_key",
            "user_agent",
            "no_cookies",
            "accept",
            "max_redirects",
            "timeout",
            "connect_timeout",
            "max_body",
            "ca",
            "insecure",
            "http1",
            "resolve",
            "ipv4",
            "ipv6",
            "proxy",
            "proxy_by",
        ],
    ),
    (
        "Politeness",
        &[
            "profile",
            "rate",
            "limits",
            "policy",
            "labels",
            "burst",
            "in_flight",
            "law",
            "key",
            "concurrency",
            "max_hosts",
            "max_rps",
            "site_rps",
            "memory_cap",
            "cut",
            "no_robots",
            "robots_token",
        ],
    ),
    (
        "Retries",
        &[
            "retry",
            "retries",
            "backoff",
            "jitter",
            "retry_budget",
            "breaker",
            "give_up_after",
        ],
    ),
    (
        "Sharing",
        &[
            "coordinator",
            "on_unavailable",
            "token_file",
            "client",
            "store",
            "store_password_file",
            "store_unavailable",
            "lease",
        ],
    ),
    ("Diagnostics", &[]),
];
/// The flags of the short help.
const SHORT: [&str; 18] = [
    "input",
    "config",
    "output",
    "save",
    "state",
    "method",
    "header",
    "bearer_file",
    "data",
    "accept",
    "timeout",
    "proxy",
    "profile",
    "rate",
    "no_robots",
    "retries",
    "coordinator",
    "verbose",
];

/// Puts an argument into its group.
pub(super) fn grouped(arg: Arg) -> Arg {
    if arg.is_positional() {
        return arg;
    }
    let name = arg.get_id().as_str().to_owned();
    let is_of = |(_, names): &&(&str, &[&str])| names.contains(&name.as_str());
    let (heading, _) = GROUPS
        .iter()
        .find(is_of)
        .unwrap_or(&GROUPS[GROUPS.len() - 1]);
    arg.help_heading(*heading)
        .hide_short_help(!SHORT.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn every_grouped_flag_exists_and_only_diagnostics_are_left() {
        let command = Cli::command();
        let fetch = command.find_subcommand("fetch").unwrap();
        let names: Vec<&str> = fetch
            .get_arguments()
            .map(|arg| arg.get_id().as_str())
            .collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        for name in grouped.iter().chain(&SHORT) {
            assert!(names.contains(name), "{name}");
        }
        let mut left = names.iter().filter(|name| !grouped.contains(name));
        let known = ["urls", "verbose", "log", "otlp"];
        assert!(left.all(|name| known.contains(name)), "{names:?}");
    }
}
