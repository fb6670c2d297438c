//! The standard metrics of a process: memory, descriptors, CPU time. Only Linux has them.

/// Hands the gauges to the metrics recorder.
pub(super) fn emit() {
    #[cfg(target_os = "linux")]
    linux::emit();
}

/// Appends the CPU time. It is a counter of seconds with fractions, which the recorder cannot keep.
pub(super) fn render_cpu(text: &mut String) {
    #[cfg(target_os = "linux")]
    linux::render_cpu(text);
    #[cfg(not(target_os = "linux"))]
    let _ = text;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt::Write;
    use std::fs;

    use rustix::param::{clock_ticks_per_second, page_size};
    use rustix::process::{Resource, getrlimit};

    /// The fields of `/proc/self/stat` behind the name of the program, which may contain anything.
    /// Field 3 of proc(5) is the first.
    struct Stat(Vec<u64>);

    impl Stat {
        fn read() -> Option<Self> {
            Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
        }

        fn parse(text: &str) -> Option<Self> {
            let (_, fields) = text.rsplit_once(") ")?;
            // The first field is a letter, and some numbers are negative. None of them is used.
            let number = |field: &str| field.parse().unwrap_or_default();
            Some(Self(fields.split_whitespace().map(number).collect()))
        }

        /// Returns field `number` of proc(5).
        fn field(&self, number: usize) -> u64 {
            self.0.get(number - 3).copied().unwrap_or_default()
        }

        /// Returns a field that counts ticks, in seconds.
        fn seconds(&self, number: usize) -> f64 {
            self.field(number) as f64 / clock_ticks_per_second() as f64
        }
    }

    pub(super) fn emit() {
        if let Some(stat) = Stat::read() {
            let resident = stat.field(24).saturating_mul(page_size() as u64);
            ::metrics::gauge!("process_resident_memory_bytes").set(resident as f64);
            ::metrics::gauge!("process_virtual_memory_bytes").set(stat.field(23) as f64);
            if let Some(boot) = boot_time_s() {
                let start = boot as f64 + stat.seconds(22);
                ::metrics::gauge!("process_start_time_seconds").set(start);
            }
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the folder that is read.
            let open = open.count().saturating_sub(1);
            ::metrics::gauge!("process_open_fds").set(open as f64);
        }
        let most = getrlimit(Resource::Nofile).current;
        let most = most.map_or(f64::INFINITY, |most| most as f64);
        ::metrics::gauge!("process_max_fds").set(most);
    }

    pub(super) fn render_cpu(text: &mut String) {
        let Some(stat) = Stat::read() else {
            return;
        };
        let seconds = stat.seconds(14) + stat.seconds(15);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n\
             # TYPE process_cpu_seconds_total counter\n\
             process_cpu_seconds_total {seconds}\n"
        );
    }

    /// Returns when the machine started, in seconds since 1970.
    fn boot_time_s() -> Option<u64> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
        line.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_with_brackets_and_spaces_moves_no_field() {
            let stat = "7 (a) b (c) S 1 7 7 0 -1 4 1 2 3 4 150 50 0 0 20 0 1 0 900 4096 25 9";
            let stat = Stat::parse(stat).unwrap();
            let fields = [14, 15, 22, 23, 24].map(|number| stat.field(number));
            assert_eq!(fields, [150, 50, 900, 4096, 25]);
            assert_eq!(stat.field(99), 0);
        }
    }
}
