//! The library as a C program gets it: installed by the script that `make install` runs, found by pkg-config, compiled strictly.

use std::env;
use std::io::{self, Write};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// In one piece, so that it is one line beside those of other threads.
fn skipped(needs: &str) {
    let _ = io::stderr().write_all(format!("skipped: needs {needs}\n").as_bytes());
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}

/// The output of a program that has to end well.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the libraries that belong to this test: beside it.
fn build_directory() -> PathBuf {
    let test = env::current_exe().unwrap();
    let directory = test.parent().unwrap().to_owned();
    for library in ["libisotherm.so", "libisotherm.a"] {
        assert!(directory.join(library).exists(), "cargo built no {library} in {}", directory.display());
    }
    directory
}

/// The library, installed into a directory of its own.
struct Installed {
    root: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let root = tempfile::tempdir().unwrap();
        let script = crate_root().join("../../scripts/install.sh");
        // A prefix that is not where it is staged, as for a package, would need pkg-config's sysroot: staged by another test.
        run(Command::new(script)
            .arg(build_directory())
            .arg("library")
            .env("PREFIX", root.path())
            .env_remove("DESTDIR"));
        Installed { root }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.path().join(file)
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let directory = self.path("lib/pkgconfig");
        let output = run(Command::new("pkg-config").args(arguments).arg("isotherm").env("PKG_CONFIG_PATH", directory));
        output.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a source against it and runs what comes of it.
    fn compiled(&self, compiler: &str, flags: &[&str], source: &Path, libraries: &[String]) -> String {
        let program = self.path("program");
        run(Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
            .args(flags)
            .arg(source)
            .args(self.pkg_config(&["--cflags"]))
            .args(libraries)
            .arg("-o")
            .arg(&program));
        run(Command::new(program).env("LD_LIBRARY_PATH", self.path("lib")))
    }
}

/// What is needed to compile; says so if something is missing.
fn needs(programs: &[&str]) -> bool {
    for program in programs {
        if !has(program) {
            skipped(program);
            return false;
        }
    }
    true
}

const EXPECTED: &str = "\
a huge page: aligned 1, frames apart 2
freed twice: it is free already
never had: no block of this pool with that first frame and order
in bulk: 1000
frames: 8192, free: 8192, refused: 2
blocks of 4 MiB: 8, then: no block of that order is free, or there is not enough memory
";

#[test]
fn the_example_compiles_strictly_and_runs() {
    if !needs(&["gcc", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();
    let example = crate_root().join("examples/pool.c");
    let libraries = installed.pkg_config(&["--libs"]);
    assert_eq!(installed.compiled("gcc", &["-std=c99"], &example, &libraries), EXPECTED);
}

#[test]
fn the_example_runs_without_the_shared_library() {
    if !needs(&["gcc", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();
    let mut libraries: Vec<String> = installed.pkg_config(&["--static", "--libs"]);
    libraries.retain(|l| l != "-lisotherm" && !l.starts_with("-L"));
    libraries.insert(0, installed.path("lib/libisotherm.a").display().to_string());
    let example = crate_root().join("examples/pool.c");
    assert_eq!(installed.compiled("gcc", &["-std=c99"], &example, &libraries), EXPECTED);
    // The compiler answers with the bare name where there is none.
    if run(Command::new("gcc").arg("-print-file-name=libc.a")).trim() == "libc.a" {
        return skipped("a C library to be linked statically");
    }
    assert_eq!(installed.compiled("gcc", &["-std=c99", "-static"], &example, &libraries), EXPECTED);
}

#[test]
fn the_examples_of_the_guide_and_the_readme_print_what_is_printed_there() {
    if !needs(&["gcc", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();
    for page in ["../../docs/guide/frames-and-pools.md", "README.md"] {
        let text = std::fs::read_to_string(crate_root().join(page)).unwrap();
        let (_, from) = text.split_once("```c\n").unwrap();
        let (example, after) = from.split_once("```").unwrap();
        let source = installed.path("hello.c");
        std::fs::write(&source, example).unwrap();
        let printed = installed.compiled("gcc", &["-std=c99"], &source, &installed.pkg_config(&["--libs"]));
        assert_eq!(printed.trim(), "it is free already", "{page}");
        assert!(after.contains(&format!("./hello   # {}", printed.trim())), "{page}");
    }
}

#[test]
fn the_header_is_c_plus_plus_too() {
    if !needs(&["g++", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();
    let source = installed.path("a.cpp");
    std::fs::write(
        &source,
        "#include <isotherm.h>\n#include <cstdio>\nint main() { std::puts(isotherm_version()); std::puts(ISOTHERM_VERSION); return isotherm_strerror(0) == 0; }\n",
    )
    .unwrap();
    let printed = installed.compiled("g++", &["-std=c++11"], &source, &installed.pkg_config(&["--libs"]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(printed.lines().collect::<Vec<_>>(), [version; 2], "of the library, of the header");
}

#[test]
fn structures_lie_as_the_header_says() {
    if !needs(&["gcc", "pkg-config"]) {
        return;
    }
    use isotherm::{Options, Stats};
    let fields: Vec<(String, usize)> = [
        ("options", "device", offset_of!(Options, device)),
        ("options", "tier", offset_of!(Options, tier)),
        ("stats", "tier", offset_of!(Stats, tier)),
        ("options", "seed", offset_of!(Options, seed)),
        ("options", "colour_cache_bytes", offset_of!(Options, colour_cache_bytes)),
        ("options", "shuffle", offset_of!(Options, shuffle)),
        ("options", "backing", offset_of!(Options, backing)),
        ("stats", "free_blocks", offset_of!(Stats, free_blocks)),
        ("stats", "contended", offset_of!(Stats, contended)),
        ("stats", "shuffled", offset_of!(Stats, shuffled)),
    ]
    .into_iter()
    .map(|(of, field, offset)| (format!("offsetof(struct isotherm_pool_{of}, {field})"), offset))
    .chain([
        ("sizeof(struct isotherm_pool_options)".to_owned(), size_of::<Options>()),
        ("sizeof(struct isotherm_pool_stats)".to_owned(), size_of::<Stats>()),
    ])
    .collect();
    let installed = Installed::new();
    let source = installed.path("layout.c");
    let prints: String = fields.iter().map(|(what, _)| format!("printf(\"%zu \", {what});\n")).collect();
    std::fs::write(
        &source,
        format!("#include <isotherm.h>\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n"),
    )
    .unwrap();
    let printed = installed.compiled("gcc", &["-std=c99"], &source, &installed.pkg_config(&["--libs"]));
    let expected: Vec<String> = fields.iter().map(|(_, offset)| offset.to_string()).collect();
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), expected, "{fields:?}");
}

#[test]
fn nothing_but_the_interface_is_exported_under_a_versioned_name() {
    if !needs(&["nm", "readelf"]) {
        return;
    }
    let library = build_directory().join("libisotherm.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only", "--format=just-symbols"]).arg(&library));
    let exported: Vec<&str> = symbols.lines().collect();
    assert!(exported.iter().all(|s| s.starts_with("isotherm_")), "{exported:?}");
    let header = std::fs::read_to_string(crate_root().join("include/isotherm.h")).unwrap();
    for symbol in &exported {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
    }
    let declared = header.lines().filter(|l| l.ends_with(");") && l.contains("isotherm_") && !l.starts_with(' '));
    assert_eq!(declared.count(), exported.len(), "{exported:?}");
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    assert!(dynamic.contains(&format!("soname: [libisotherm.so.{major}]")), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "it has restartable sequences: {dynamic}");
}

#[test]
fn a_package_is_staged_elsewhere_than_it_is_used() {
    let root = tempfile::tempdir().unwrap();
    let script = crate_root().join("../../scripts/install.sh");
    run(Command::new(&script).arg(build_directory()).arg("library").env("PREFIX", "/usr").env("DESTDIR", root.path()));
    let pc = std::fs::read_to_string(root.path().join("usr/lib/pkgconfig/isotherm.pc")).unwrap();
    assert!(pc.contains("prefix=/usr\n") && pc.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{pc}");
    let linked = std::fs::canonicalize(root.path().join("usr/lib/libisotherm.so")).unwrap();
    assert!(linked.ends_with(concat!("libisotherm.so.", env!("CARGO_PKG_VERSION"))), "{}", linked.display());
    let refused = Command::new(&script).arg(build_directory()).arg("everything").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}
