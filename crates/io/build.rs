//! Says what may be used that other systems have not: `linux` for what Linux has, `linux_kernel` for what Android has
//! as well. With the feature `portable` neither, so that what stands in elsewhere can be tried on Linux.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(linux, linux_kernel)");
    if std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        return;
    }
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system == "linux" {
        println!("cargo:rustc-cfg=linux");
    }
    if system == "linux" || system == "android" {
        println!("cargo:rustc-cfg=linux_kernel");
    }
}
