//! Compiles the BPF program and generates its skeleton.
//!
//! Needs clang and libelf at build time only; `make` installs them where it may.

use libbpf_cargo::SkeletonBuilder;
use std::{env, path::PathBuf};

const SOURCE: &str = "src/bpf/walk.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed=src/bpf/kernel_types.h");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("walk.skel.rs");
    if let Err(error) =
        SkeletonBuilder::new().source(SOURCE).clang_args(["-mcpu=v3", "-Wall", "-Werror"]).build_and_generate(&out)
    {
        panic!(
            "compile {SOURCE}: {error:#}\nclang and libbpf's headers are needed: apt-get install clang libbpf-dev libelf-dev zlib1g-dev pkg-config"
        );
    }
}
