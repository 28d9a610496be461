use isotherm_sys::*;
use isotherm_units::*;
fn main() {
    let gib: usize = std::env::args().nth(1).map_or(1, |s| s.parse().unwrap());
    let len = gib << 30;
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len + (2 << 20), 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    let base = (p as usize + (2 << 20) - 1) & !((2 << 20) - 1);
    unsafe { libc::madvise(base as *mut _, len, libc::MADV_NOHUGEPAGE) };
    for i in (0..len).step_by(4096) { unsafe { ((base + i) as *mut u8).write_volatile(1) } }
    let mut w = bpf::Walker::open().unwrap();
    println!("levels {} softdirty {:?}", w.levels(), pagemap::kernel_has_soft_dirty());
    let me = std::process::id();
    let blocks: Vec<Addr> = (0..len >> 21).map(|b| Addr((base + (b << 21)) as u64)).collect();
    for _ in 0..3 {
        let mut ns = 0; let mut young = 0u64; let mut hold = 0;
        for chunk in blocks.chunks(512) {
            let (t, pass, ans) = bpf::timed_pass(&mut w, me, bpf::Op::Blocks, chunk).unwrap();
            ns += t; hold = hold.max(pass.longest_hold_ns);
            assert_eq!(pass.done, chunk.len());
            for a in ans { young += a.a.iter().map(|w| w.count_ones() as u64).sum::<u64>(); }
        }
        println!("read {:.2} ns/page young {young} hold {} us", ns as f64 / (len / 4096) as f64, hold / 1000);
    }
    let fd = madvise::PidFd::open(me).unwrap();
    for group in [1usize, 4, 8, 32] {
        for i in (0..len).step_by(4096) { unsafe { ((base + i) as *mut u8).write_volatile(1) } }
        let t = clock::monotonic_ns();
        for c in blocks.chunks(group) { fd.advise_cold(&[AddrRange::new(c[0], Addr(c[c.len()-1].0 + BLOCK_SIZE))]).unwrap(); }
        let dt = clock::monotonic_ns() - t;
        println!("cold group {group}: {:.1} ns/page, {:.1} us/block", dt as f64 / (len / 4096) as f64, dt as f64 / 1e3 / blocks.len() as f64);
    }
    // batching iovecs, single blocks not contiguous
    for i in (0..len).step_by(4096) { unsafe { ((base + i) as *mut u8).write_volatile(1) } }
    let t = clock::monotonic_ns();
    let rs: Vec<AddrRange> = blocks.iter().step_by(2).map(|c| AddrRange::new(*c, Addr(c.0 + BLOCK_SIZE))).collect();
    for c in rs.chunks(16) { fd.advise_cold(c).unwrap(); }
    println!("iovec16 single blocks: {:.1} us/block", (clock::monotonic_ns() - t) as f64 / 1e3 / rs.len() as f64);
    // already cold
    let t = clock::monotonic_ns();
    for c in rs.chunks(16) { fd.advise_cold(c).unwrap(); }
    println!("again, already cold: {:.1} us/block", (clock::monotonic_ns() - t) as f64 / 1e3 / rs.len() as f64);
    // small hot loop then clear_refs with and without flush
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let s2 = stop.clone();
    let th = std::thread::spawn(move || { while !s2.load(std::sync::atomic::Ordering::Relaxed) { for i in 0..16 { unsafe { ((base + i * 4096) as *mut u8).write_volatile(2) } } } });
    for (name, flush) in [("noflush", false), ("flush4", true)] {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let t = clock::monotonic_ns();
        clear_refs::clear(std::path::Path::new("/proc"), me, clear_refs::Clear::All).unwrap();
        let t1 = clock::monotonic_ns();
        if flush { clear_refs::flush_tlb(std::path::Path::new("/proc"), me).unwrap(); }
        let t2 = clock::monotonic_ns();
        for ms in [1, 10, 100] {
            std::thread::sleep(std::time::Duration::from_millis(ms));
            let (_, a) = w.pass(me, bpf::Op::Blocks, &blocks[..1]).unwrap();
            print!("{} ", a[0].a[0].count_ones());
        }
        println!("{name}: clear {:.1} ns/page, flush {:.1} ns/page", (t1 - t) as f64 / (len / 4096) as f64, (t2 - t1) as f64 / (len / 4096) as f64);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed); th.join().unwrap();
    let (t, p, a) = bpf::timed_pass(&mut w, me, bpf::Op::Tables, &blocks[..1]).unwrap();
    println!("tables: {t} ns {:?} {:x?} {:x?}", p, a[0].a, a[0].b);
}
