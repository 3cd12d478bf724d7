//! Resources whose pressure a script says: files in a proxy's folder that its `injected_resource` monitors read.

use std::path::Path;

/// Changes it: Envoy looks at a file that another one was renamed to.
pub(crate) fn set(folder: &Path, name: &str, value: &str) {
    let path = folder.join(format!("pressure-{name}"));
    let new = path.with_extension("new");
    std::fs::write(&new, value).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Writes where the files of `${pressure NAME}` are. They begin at 0.
pub(crate) fn fill(text: &str, folder: &Path) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${pressure ") {
        let (name, after) = after.split_once('}').unwrap();
        set(folder, name, "0");
        filled.push_str(before);
        filled.push_str(&folder.join(format!("pressure-{name}")).display().to_string());
        rest = after;
    }
    filled + rest
}
