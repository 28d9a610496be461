//! What paging out costs a store that is busy all the time: instructions for each operation, with `isotherm run` and without.
//!
//! A store that sleeps between requests would show the same instructions as a larger share of its own.

use super::scene::{Load, Scene};
use super::wait;
use super::ways::Way;
use anyhow::Result;

/// Idle for this long, a page leaves here: such a store makes the guest several times slower than real time.
const AGE_S: u64 = 15;
/// What is cold has left.
const SETTLED_S: f64 = 35.0;
const MEASURED_S: u32 = 20;

/// CPU time of the store for each operation.
pub fn ns_per_operation(seed: u64, way: Way) -> Result<f64> {
    let scene = Scene::start(seed, Load { heaps: 1, per_s: None })?;
    let _working = way.start(&scene, AGE_S, 0)?;
    wait(SETTLED_S);
    wait(f64::from(MEASURED_S));
    scene.cpu_ns_per_operation(u64::from(MEASURED_S) * 1_000_000_000)
}
