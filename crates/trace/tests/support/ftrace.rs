//! Kernel tracing that is a test's own.

#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files fails")]

use std::path::{Path, PathBuf};

/// An ftrace instance that is removed again.
pub struct Instance(PathBuf);

impl Instance {
    /// An instance for the test of this name; the error says why there is none, which takes root and tracefs.
    pub fn new(name: &str) -> Result<Self, String> {
        let root = Path::new("/sys/kernel/tracing");
        if !root.join("trace").exists() {
            let flags = rustix::mount::MountFlags::empty();
            let mounted = rustix::mount::mount("nodev", root, "tracefs", flags, None);
            // Another test may have been a moment earlier.
            if !root.join("trace").exists() {
                mounted.map_err(|error| format!("tracefs: {error}"))?;
            }
        }
        remove_of_the_ended(&root.join("instances"));
        let name =
            format!("towpath-{}-{name}-{:?}", std::process::id(), std::thread::current().id());
        let folder = root.join("instances").join(name.replace(['(', ')'], ""));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    pub fn set(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap();
    }

    pub fn trace(&self) -> String {
        std::fs::read_to_string(self.0.join("trace")).unwrap()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A process that has its marker open cannot remove its instance, which keeps memory of the kernel until another
/// process does.
fn remove_of_the_ended(instances: &Path) {
    for entry in std::fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("towpath-")?.split('-').next());
        if pid
            .is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
        {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}
