//! Which physical addresses are RAM: the ranges that `paddr` needs.

use super::Error;
use isotherm_units::{Addr, AddrRange, PAGE_SIZE};
use std::fs;
use std::path::Path;

/// `System RAM` of `/proc/iomem`, in whole pages and in order.
pub fn system_ram(proc: &Path) -> Result<Vec<AddrRange>, Error> {
    let path = proc.join("iomem");
    let attempted = || format!("read {}", path.display());
    let text = fs::read_to_string(&path).map_err(|e| Error::from_io(attempted(), e))?;
    let found = parse(&text);
    // Without privilege all addresses read as zero.
    if found.is_empty() { Err(Error::Denied { attempted: attempted() }) } else { Ok(found) }
}

/// Lines such as `00100000-bffdffff : System RAM`. Ranges inside of one are indented, and so is the memory of drivers (CXL, virtio-mem) below its
/// device, as `System RAM (kmem)`. RAM is never inside of other RAM.
fn parse(text: &str) -> Vec<AddrRange> {
    let line = |line: &str| {
        let (range, name) = line.trim_start().split_once(" : ")?;
        let (first, last) = range.split_once('-')?;
        let (first, last) = (u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(last, 16).ok()?);
        let end = last.checked_add(1)? / PAGE_SIZE * PAGE_SIZE;
        let range = AddrRange::new(Addr(first.next_multiple_of(PAGE_SIZE)), Addr(end));
        let is_ram = name == "System RAM" || name.starts_with("System RAM (");
        (is_ram && !range.is_empty()).then_some(range)
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_what_is_in_it_and_beside_it() {
        let text = "00000000-00000fff : Reserved
00001000-0009fbff : System RAM
000a0000-000bffff : PCI Bus 0000:00
00100000-7ffdffff : System RAM
  01000000-020025c7 : Kernel code
100000000-17fffffff : System RAM
";
        let range = |start, end| AddrRange::new(Addr(start), Addr(end));
        assert_eq!(parse(text), [range(0x1000, 0x9f000), range(0x10_0000, 0x7ffe_0000), range(1 << 32, 0x1_8000_0000)]);
        assert_eq!(parse("00000000-00000000 : System RAM\n"), [], "hidden from us");
    }

    #[test]
    fn memory_of_drivers_is_found_below_its_device() {
        let text = "100000000-47fffffff : System RAM
490000000-50fffffff : CXL Window 0
  490000000-50fffffff : region0
    490000000-50fffffff : dax0.0
      490000000-50fffffff : System RAM (kmem)
540000000-63fffffff : fd:00.0
  540000000-57fffffff : System RAM (virtio_mem)
";
        let range = |start, end| AddrRange::new(Addr(start), Addr(end));
        let expected =
            [range(1 << 32, 0x4_8000_0000), range(0x4_9000_0000, 0x5_1000_0000), range(0x5_4000_0000, 0x5_8000_0000)];
        assert_eq!(parse(text), expected);
    }
}
