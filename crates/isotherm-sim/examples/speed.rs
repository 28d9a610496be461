//! What an answer of the model takes, so that a run over terabytes can be reckoned in advance.
//!
//! `cargo run --release -p isotherm-sim --example speed`

use isotherm_heat::Clock;
use isotherm_heat::source::{AccessSource, PageSource};
use isotherm_sim::{Access, Area, Claim, Heat, Host, ModelClock, ModelSource, PageProbe, Process, Scope};
use isotherm_sys::clock::thread_cpu_ns;
use isotherm_units::{Addr, AddrRange, Bytes, PageNo, PmdNo};
use std::hint::black_box;
use std::sync::Arc;

const GIB: u64 = 1 << 30;
const START: u64 = 1 << 46;
const MS: u64 = 1_000_000;

fn per(name: &str, times: u64, f: impl FnOnce()) {
    // CPU time: the same on a busy machine.
    let began = thread_cpu_ns();
    f();
    println!("{name:50} {:>10.1} ns", (thread_cpu_ns() - began) as f64 / times as f64);
}

/// Reads 64 GiB of one heat, `after` ns from its clear.
fn pmds(name: &str, heat: Heat, after: u64) {
    let range = AddrRange::new(Addr(START), Addr(START + 64 * GIB));
    let process = Process::new(1, "p").area(Area::new(range, heat));
    let host = Arc::new(Host::new(range.len(), vec![process]).expect("a valid host"));
    let clock = ModelClock::default();
    let mut source = ModelSource::new(host, clock.clone());
    source.attach(1).expect("it is there");
    let all: Vec<PmdNo> = range.pmds().collect();
    per(&format!("{name}: clear a huge range"), all.len() as u64, || {
        source.clear(1, &all, &mut |_, _, _| {}).expect("attached");
    });
    clock.sleep_until(clock.now() + after);
    per(&format!("{name}: read a huge range"), all.len() as u64, || {
        source.read(1, &all, &mut |_, _, bits| _ = black_box(bits)).expect("attached");
    });
}

fn main() {
    pmds("never", Heat::never(), MS);
    pmds("every 10 s, after 2.8 s", Heat::every(10_000 * MS), 0);
    pmds("every 1 ms", Heat::every(MS), 10 * MS);
    pmds("random, every 10 s", Heat::poisson(10_000 * MS), 0);
    pmds("random, every 1 ms", Heat::poisson(MS), 100 * MS);
    let scattered = Heat::Scattered { share: 0.1, hot: Access::Poisson(10_000 * MS), rest: Access::Never };
    pmds("scattered, random, every 10 s", scattered, 0);
    pmds("a Gaussian", Heat::gaussian(100 * MS, 0.1), 0);

    let host = Arc::new(Host::two_tib());
    let physical = host.physical(Bytes::of_mib(2), 1).expect("a valid chunk");
    let clock = ModelClock::default();
    let probe = PageProbe::new(host.clone(), clock.clone());
    let frames = physical.range().len().pages();
    let at = probe.prepare();
    clock.sleep_until(5 * MS);
    per("2 TiB: check a page", 1_000_000, || {
        let process = host.processes().last().expect("it has some");
        let first = process.areas[0].range.start.page().0;
        for i in 0..1_000_000 {
            black_box(probe.check(process.pid, PageNo(first + i % 1000), at));
        }
    });
    per("2 TiB: check a frame anywhere", 1_000_000, || {
        for i in 0..1_000_000_u64 {
            black_box(probe.check_frame(&physical, i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % frames, at));
        }
    });
    per("2 TiB: owners of a chunk", 1 << 20, || {
        black_box(physical.pages_in(physical.range()).count());
    });
    per("2 TiB: truth", 1, || _ = black_box(host.truth(Scope::Host, 0)));
    let claims =
        host.processes().iter().flat_map(|p| p.areas.iter().map(|a| Claim { pid: p.pid, range: a.range, hot: 1.0 }));
    per("2 TiB: score of a claim for each area", 1, || _ = black_box(host.score(Scope::Host, 0, MS, claims)));
}
