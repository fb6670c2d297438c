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

    use procfs::process::{LimitValue, Process};

    pub(super) fn emit() {
        let Ok(process) = Process::myself() else {
            return;
        };
        if let Ok(stat) = process.stat() {
            let resident = stat.rss.saturating_mul(procfs::page_size());
            ::metrics::gauge!("process_resident_memory_bytes").set(resident as f64);
            ::metrics::gauge!("process_virtual_memory_bytes").set(stat.vsize as f64);
            if let Ok(boot) = procfs::boot_time_secs() {
                let start = boot as f64 + seconds(stat.starttime);
                ::metrics::gauge!("process_start_time_seconds").set(start);
            }
        }
        if let Ok(open) = process.fd_count() {
            ::metrics::gauge!("process_open_fds").set(open as f64);
        }
        if let Ok(limits) = process.limits() {
            let most = match limits.max_open_files.soft_limit {
                LimitValue::Unlimited => f64::INFINITY,
                LimitValue::Value(most) => most as f64,
            };
            ::metrics::gauge!("process_max_fds").set(most);
        }
    }

    pub(super) fn render_cpu(text: &mut String) {
        let Ok(stat) = Process::myself().and_then(|process| process.stat()) else {
            return;
        };
        let seconds = seconds(stat.utime + stat.stime);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n\
             # TYPE process_cpu_seconds_total counter\n\
             process_cpu_seconds_total {seconds}\n"
        );
    }

    /// Returns the seconds of a time in `/proc`.
    fn seconds(ticks: u64) -> f64 {
        ticks as f64 / procfs::ticks_per_second() as f64
    }
}
