//! Writes `docs/benchmarks.md` and the table of the README: see [`isotherm_bench::page`].

use anyhow::{Context, Result};
use isotherm_bench::page::{Texts, newest_results, page, readme};
use std::fs;
use std::path::Path;

fn main() -> Result<()> {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = Texts::parse(&read(&bench.join("benchmarks.toml"))?)?;
    let results = newest_results(&bench.join("results"))?;
    let table_of = bench.join("../README.md");
    write(&table_of, &readme(&read(&table_of)?, &texts, &results)?)?;
    write(&bench.join("../docs/benchmarks.md"), &page(&texts, &results)?)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
