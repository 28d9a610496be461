//! How long the arithmetic of a direct-mapped cache takes: 16 million frames (64 GiB) in random blocks of 256 GiB, and a cache of 16 GiB.

use isotherm_placement::direct_mapped::{
    Conflict, DirectMapped, Footprint, Shuffle, coloured, coloured_by_heat, unavoidable,
};
use isotherm_rng::Rng;
use isotherm_units::{Bytes, FrameNo};
use std::time::Instant;

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    println!("{what:<32} {:>8.0} ms", began.elapsed().as_secs_f64() * 1e3);
    done
}

fn main() {
    let mut rng = Rng::new(1);
    let memory = Bytes::of_mib(256 << 10);
    for cache in [Bytes::of_mib(16 << 10), Bytes::of_mib(128 << 10)] {
        let cache = DirectMapped::new(cache).expect("whole pages");
        println!("cache of {}", cache.size());
        let frames: Vec<(FrameNo, f32)> = (0..16 << 20)
            .map(|i: u64| {
                (FrameNo((((i >> 10) * 40_503 % 65_536) << 10) + (i & 1023)), 1.0 / (1.0 + rng.below(1000) as f32))
            })
            .collect();
        let told = timed("told one by one", || {
            let mut conflict = Conflict::new(cache);
            frames.iter().for_each(|(frame, weight)| conflict.add(*frame, f64::from(*weight)));
            conflict
        });
        let placed = timed("summed up", || told.finish());
        let footprint = timed("kept by block", || Footprint::weighted(frames));
        let mut shuffle = Shuffle::new(memory, &footprint);
        let shuffled = timed("one draw, shuffled", || shuffle.draw(&footprint, cache, &mut rng));
        let even = timed("one draw, coloured", || coloured(&footprint, cache, &mut rng));
        let by_heat = timed("coloured by heat", || coloured_by_heat(&footprint, cache));
        let rest = timed("unavoidable", || unavoidable(&footprint, cache));
        println!(
            "rates {:?}",
            [placed, shuffled, even, by_heat].map(|m| m.rate()).map(|r| (r.unwrap_or(0.0) * 1e4).round() / 1e4)
        );
        println!("unavoidable {rest:?}");
    }
}
