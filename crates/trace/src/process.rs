//! What a file says about the process that made it.

use crate::perfetto::hash;

/// The process as viewers show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// Two files with the same one have the same boot clock; empty where the system has none.
    pub(crate) boot_id: String,
}

impl Process {
    pub(crate) fn this() -> Self {
        let command: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let program = std::env::current_exe().ok();
        let name = program.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            pid: std::process::id(),
            name: name.unwrap_or_default(),
            command,
            boot_id: boot_id.trim().to_owned(),
        }
    }

    /// Makes the ids of this process's recording its own, in whatever file they end up.
    pub(crate) fn seed(&self, start_ns: u64) -> u64 {
        hash(self.boot_id.as_bytes()) ^ u64::from(self.pid) << 32 ^ start_ns
    }
}
