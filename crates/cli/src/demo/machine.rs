//! What was measured on.

/// The machine in one line: processor, cores, memory and kernel.
pub(super) fn describe() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let processor = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_kb: u64 = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processor}, {cores} cores, {} GB, Linux {}",
        memory_kb.div_ceil(1024 * 1024),
        kernel.trim()
    )
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}
