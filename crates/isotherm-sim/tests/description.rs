//! Host files: what they come to, and what is said of bad ones.

use isotherm_sim::{AreaFault, Error, Heat, Host, Scope};
use isotherm_units::{Addr, AddrRange, Bytes};

const S: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

fn with_areas(areas: &str) -> Result<Host, Error> {
    Host::from_toml(&format!("memory = '1 GiB'\n[[process]]\npid = 7\ncomm = 'p'\narea = [{areas}]\n"))
}

fn message(result: Result<Host, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn areas_follow_one_another_unless_told_otherwise() {
    let host = with_areas(
        "{ size = '1 MiB', heat = 'never' }, { size = '3 MiB', gap = '4 MiB', heat = 'never' },
         { start = 0x1000, size = '8 KiB', heat = { every = '5ms' } }, { size = '4096', heat = 'never' }",
    )
    .unwrap();
    let at = |start, len| AddrRange::new(Addr(start), Addr(start + len));
    let first = 0x7000_0000_0000;
    let ranges: Vec<AddrRange> = host.process(7).unwrap().areas.iter().map(|a| a.range).collect();
    assert_eq!(ranges, [at(0x1000, 8192), at(0x3000, 4096), at(first, 1 << 20), at(first + (5 << 20), 3 << 20)]);
    assert_eq!(host.process(7).unwrap().areas[0].heat, Heat::every(5_000_000));
}

#[test]
fn unknown_keys_and_bad_values_are_named_with_their_line() {
    let unknown = message(with_areas("{ size = '1 MiB', heat = 'never', colour = 'red' }"));
    assert!(unknown.contains("line 5") && unknown.contains("unknown field `colour`"), "{unknown}");
    let size = message(with_areas("{ size = 'much', heat = 'never' }"));
    assert!(size.contains("\"much\" is no size; write one like \"64 MiB\""), "{size}");
    let time = message(with_areas("{ size = '1 MiB', heat = { every = '5' } }"));
    assert!(time.contains("\"5\" is no time"), "{time}");
    let kind = message(with_areas("{ size = '1 MiB', heat = 'warm' }"));
    assert!(kind.contains("unknown variant `warm`, expected one of `never`, `every`, `poisson`"), "{kind}");
    let two = message(with_areas("{ size = '1 MiB', heat = { every = '5ms', poisson = '5ms' } }"));
    assert!(two.contains("line 5"), "{two}");
    let missing = message(with_areas("{ size = '1 MiB' }"));
    assert!(missing.contains("missing field `heat`"), "{missing}");
    let inner = message(with_areas(
        "{ size = '1 MiB', heat = { scattered = { share = 0.5, hot = 'never', rest = 'never', x = 1 } } }",
    ));
    assert!(inner.contains("unknown field `x`"), "{inner}");
    assert!(message(Host::from_toml("memory = '1 GiB'\ncpus = 3")).contains("unknown field `cpus`"));
}

#[test]
fn areas_that_cannot_be_are_refused() {
    let fault = |areas| match with_areas(areas) {
        Err(Error::Area { pid: 7, fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault("{ size = '0', heat = 'never' }"), AreaFault::Empty);
    assert_eq!(fault("{ size = '5000', heat = 'never' }"), AreaFault::NotPages);
    assert_eq!(fault("{ size = '1 MiB', pages = '2MiB', heat = 'never' }"), AreaFault::NotPmds);
    assert_eq!(fault("{ start = 0x7fffffffe000, size = '1 MiB', heat = 'never' }"), AreaFault::BeyondUserSpace);
    assert_eq!(fault("{ start = 0x1000, size = '16 EiB', heat = 'never' }"), AreaFault::BeyondUserSpace);
    let overlap =
        "{ start = 0x3000, size = '8 KiB', heat = 'never' }, { start = 0x1000, size = '12 KiB', heat = 'never' }";
    assert!(matches!(fault(overlap), AreaFault::Overlap(_)));
    assert_eq!(
        message(with_areas(overlap)),
        "process 7: area 0x3000..0x5000: it overlaps with the area 0x1000..0x4000"
    );
}

#[test]
fn heats_that_cannot_be_are_refused() {
    let heat = |heat: &str| message(with_areas(&format!("{{ size = '1 MiB', heat = {heat} }}")));
    assert!(
        heat("{ every = '0s' }").ends_with("an interval of 0; the shortest is 1ns, and \"never\" is written as that")
    );
    assert!(heat("{ scattered = { share = 1.5, hot = 'never', rest = 'never' } }").contains("share = 1.5: a share is"));
    assert!(heat("{ gaussian = { peak = '1ms', sigma = 0.0 } }").contains("sigma = 0: "));
    assert!(heat("{ gaussian = { peak = '1s', sigma = 0.1, coldest = '1ms' } }").contains("coldest is a shorter time"));
    assert!(heat("{ phases = [] }").contains("at least one"));
    assert!(heat("{ phases = [{ heat = 'never' }, { until = '5s', heat = 'never' }] }").contains("only the last"));
}

#[test]
fn hosts_that_cannot_be_are_refused() {
    assert!(matches!(Host::from_toml("memory = '0'"), Err(Error::NoMemory)));
    assert!(message(Host::from_toml("")).contains("missing field `memory`"));
    let process = |pid: u64, rest: &str| format!("[[process]]\npid = {pid}\ncomm = 'p'\n{rest}\n");
    let of = |text: String| Host::from_toml(&format!("memory = '1 MiB'\n{text}"));
    assert!(matches!(of(process(7, "") + &process(7, "")), Err(Error::Pid(7))));
    assert!(matches!(of(process(5, "count = 3") + &process(7, "")), Err(Error::Pid(7))));
    assert!(matches!(of(process(0, "")), Err(Error::Pid(0))));
    assert!(matches!(of(process(4_194_304, "count = 2")), Err(Error::Pid(4_194_305))));
    let large = process(7, "count = 2\narea = [{ size = '600 KiB', heat = 'never' }]");
    assert_eq!(message(of(large)), "processes use 1.2 MiB, the host has 1.0 MiB");
    let long = "memory = '1 MiB'\n[[process]]\npid = 7\ncomm = 'sixteen-bytes-16'";
    assert!(message(Host::from_toml(long)).contains("longer than 15 bytes"));
}

#[test]
fn the_large_host_has_a_small_tenant_with_a_quarter_of_its_memory_hot() {
    let host = Host::two_tib();
    assert_eq!(host.memory(), Bytes(2 << 40));
    let mut cgroups: Vec<&str> = host.processes().iter().map(|p| p.cgroup.as_str()).collect();
    cgroups.dedup();
    assert_eq!(cgroups.len(), 20);
    let all = host.truth(Scope::Host, 0);
    let used = all.total().0 as f64 / host.memory().0 as f64;
    assert!((0.8..1.0).contains(&used), "{used} of it is used");
    assert!(all.within(S).0 < all.total().0 / 4, "most is idle: {} of {} hot", all.within(S), all.total());
    let small = host.truth(Scope::Cgroup("/tenants/small"), 0);
    assert_eq!((small.total(), small.within(S)), (Bytes(20 * GIB), Bytes(5 * GIB)));
    assert_eq!(host.processes().iter().filter(|p| p.cgroup == "/tenants/small").count(), 4);
    let gib: f64 = cgroups.iter().map(|c| host.truth(Scope::Cgroup(c), 0).total().0 as f64 / GIB as f64).sum();
    assert!((gib - all.total().0 as f64 / GIB as f64).abs() < 1e-6, "cgroups add up");
}
