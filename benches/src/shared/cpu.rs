//! CPU time of this process and of a server, independent of other load on this machine.

use std::time::Duration;

use politely_testkit::redis::RedisServer;

/// The CPU time of this process and of a server since the last reading.
pub(super) struct Cpu<'s> {
    server: &'s RedisServer,
    before: [Duration; 2],
}

impl<'s> Cpu<'s> {
    pub(super) fn of(server: &'s RedisServer) -> Self {
        Self {
            server,
            before: time(server),
        }
    }

    /// Returns the CPU time of this process and that of the server since the last call.
    pub(super) fn spent(&mut self) -> (Duration, Duration) {
        let now = time(self.server);
        let before = std::mem::replace(&mut self.before, now);
        (
            now[0].saturating_sub(before[0]),
            now[1].saturating_sub(before[1]),
        )
    }
}

fn time(server: &RedisServer) -> [Duration; 2] {
    let info = server.cli(&["info", "server"]);
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    let pid = pid.expect("a process has a number").trim_end();
    ["self", pid].map(|process| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
        let (_, after_name) = stat.rsplit_once(')').expect("a name");
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks
            .map(|ticks| ticks.parse::<u64>().expect("ticks"))
            .sum();
        Duration::from_millis(10 * ticks)
    })
}
