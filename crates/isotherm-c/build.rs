//! Names the library as programs ask for it at run time: by its major version, which changes when they have to be built anew. It stays loaded after
//! `dlclose`: the kernel may have the address of one of its restartable sequences until a thread's next preemption, and would end the process
//! if nothing were there then.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libisotherm.so.{major}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
