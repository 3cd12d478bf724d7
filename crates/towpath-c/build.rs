//! Names the shared library by its major version, so that a program finds the one that it was built for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS")
        .is_ok_and(|system| system != "windows" && system != "macos")
    {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtowpath_c.so.1");
    }
}
