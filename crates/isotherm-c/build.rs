//! Names the library as programs ask for it at run time: by its major version, which changes when they have to be built anew.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libisotherm.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
