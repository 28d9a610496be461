//! Compiles the BPF programs and generates their skeletons.
//!
//! Needs clang and libelf at build time only; `make` installs them where it may.

use libbpf_cargo::SkeletonBuilder;
use std::{env, path::PathBuf};

/// Sources, and the files that their skeletons are written to.
const PROGRAMS: [(&str, &str); 2] =
    [("src/page_table/walk.bpf.c", "walk.skel.rs"), ("src/vmstat/vmstat.bpf.c", "vmstat.skel.rs")];

fn main() {
    println!("cargo:rerun-if-changed=src/kernel_types.h");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Names of files are in the programs' line tables: the same for every folder that this is built in.
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let relative = format!("-ffile-prefix-map={here}=.");
    for (source, skeleton) in PROGRAMS {
        println!("cargo:rerun-if-changed={source}");
        let built = SkeletonBuilder::new()
            .source(source)
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", &relative])
            .build_and_generate(out.join(skeleton));
        if let Err(error) = built {
            panic!(
                "compile {source}: {error:#}\nclang and libbpf's headers are needed: \
                 apt-get install clang libbpf-dev libelf-dev zlib1g-dev pkg-config"
            );
        }
    }
}
