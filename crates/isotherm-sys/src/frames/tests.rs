//! Frames of made-up processes and devices, and of our own memory where we may see them.

use super::*;
use crate::memory::{Memory, PageSize};
use isotherm_units::PMD_SIZE;
use std::io::Write;
use tempfile::TempDir;

fn skip(why: &str) {
    let _ = io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

fn put(root: &TempDir, name: &str, bytes: &[u8]) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Process 7 with these pagemap entries, from page 0 on.
fn process(entries: &[u64]) -> TempDir {
    let root = TempDir::new().unwrap();
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
    put(&root, "7/pagemap", &bytes);
    root
}

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

fn range(pages: Range<u64>) -> AddrRange {
    AddrRange::new(Addr(pages.start * PAGE_SIZE), Addr(pages.end * PAGE_SIZE))
}

#[test]
fn pagemap_entries_become_frames() {
    let root = process(&[0, PRESENT | 100, PRESENT | 1 << 56 | 99, 0, SWAPPED | 5]);
    let source = PagemapFrames::open(root.path(), 7, range(1..8)).unwrap();
    assert_eq!(source.pages(), 7);
    let all = [Some(FrameNo(100)), Some(FrameNo(99)), None, None, None, None, None];
    assert_eq!(source.frames(0..7).unwrap(), all, "the file ends early, as one of a process that has ended");
    assert_eq!(source.frames(1..3).unwrap(), all[1..3]);
    assert_eq!(source.frames(3..3).unwrap(), []);
    assert_eq!(source.frame(2 * PAGE_SIZE - 1).unwrap(), FrameNo(99));
    assert!(matches!(source.frame(2 * PAGE_SIZE), Err(FrameError::NotPresent { page: 2 })));
    assert!(matches!(source.frames(0..8), Err(FrameError::PastTheEnd { page: 7, pages: 7 })));
    assert!(source.describe().contains("7/pagemap"), "{}", source.describe());
}

#[test]
fn hidden_frames_name_the_privilege() {
    let root = process(&[PRESENT, PRESENT]);
    let error = PagemapFrames::open(root.path(), 7, range(0..2)).unwrap().frame(0).unwrap_err();
    assert!(matches!(error, FrameError::Hidden { .. }) && error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    let error = PagemapFrames::open(root.path(), 8, range(0..2)).unwrap_err();
    assert!(error.to_string().contains("8/pagemap"), "{error}");
}

#[test]
fn a_huge_page_is_asked_for_once() {
    // Only the entries of the first pages say anything: two huge pages of eight, and one that is absent.
    let mut entries = vec![SWAPPED; 24];
    (entries[0], entries[8]) = (PRESENT | 800, PRESENT | 16);
    let root = process(&entries);
    let huge = Bytes(8 * PAGE_SIZE);
    let source = HugetlbFrames::open(root.path(), 7, range(0..24), huge).unwrap();
    let expected: Vec<_> = (806..808).chain(16..24).map(|n| Some(FrameNo(n))).chain([None; 3]).collect();
    assert_eq!(source.frames(6..19).unwrap(), expected);
    assert_eq!(source.frame(9 * PAGE_SIZE).unwrap(), FrameNo(17));
    assert!(source.describe().contains("32.0 KiB"), "{}", source.describe());

    for (range, size) in
        [(range(1..9), huge), (range(0..9), huge), (range(0..8), Bytes(3 * PAGE_SIZE)), (range(0..8), Bytes(0))]
    {
        let refused = HugetlbFrames::open(root.path(), 7, range, size);
        assert!(matches!(refused, Err(FrameError::NotHuge { .. })), "{range:?} {size}");
    }
    // A frame in the middle of one cannot begin one.
    let root = process(&[PRESENT | 801; 8]);
    let source = HugetlbFrames::open(root.path(), 7, range(0..8), huge).unwrap();
    assert!(matches!(source.frame(0), Err(FrameError::NotHuge { page: 0, .. })));
}

#[test]
fn a_dax_device_tells_where_it_lies() {
    const DEVICE: &str = "bus/dax/devices/dax0.0";
    let root = TempDir::new().unwrap();
    let open = |offset, pages| DaxFrames::open(root.path(), "dax0.0", offset, Bytes(pages * PAGE_SIZE));
    let error = open(0, 1).unwrap_err();
    assert!(error.to_string().contains("dax0.0/resource"), "{error}");

    // As kernels before 5.10 have it.
    put(&root, &format!("{DEVICE}/resource"), b"0x140000000\n");
    put(&root, &format!("{DEVICE}/size"), b"1073741824\n");
    let source = open(2 << 20, 1024).unwrap();
    assert_eq!((source.pages(), source.frame(4096).unwrap()), (1024, FrameNo(0x14_0000 + 513)));
    assert!(source.describe().contains("dax0.0, in one piece"), "{}", source.describe());
    // A mapping that is longer than the device has no frames there.
    assert_eq!(open(1 << 30, 1).unwrap().frames(0..1).unwrap(), [None]);
    assert_eq!(open(u64::MAX, u64::MAX >> 12).unwrap().frames(5..6).unwrap(), [None]);

    for (resource, size) in [
        ("0x0", "4096"),
        ("0x140000001", "4096"),
        ("0xfffffffffffff000", "8192"),
        ("0x140000000", "0"),
        ("", "4096"),
        ("0x1000", "x"),
    ] {
        put(&root, &format!("{DEVICE}/resource"), resource.as_bytes());
        put(&root, &format!("{DEVICE}/size"), size.as_bytes());
        assert!(matches!(open(0, 1), Err(FrameError::Garbled { .. })), "{resource} {size}");
    }

    // In two pieces, out of order.
    for (n, start, end, offset) in [(0, 0x2_0000_0000_u64, 0x2_0000_1fff_u64, 1), (1, 0x1_0000_0000, 0x1_0000_0fff, 0)]
    {
        put(&root, &format!("{DEVICE}/mapping{n}/start"), format!("{start:#x}\n").as_bytes());
        put(&root, &format!("{DEVICE}/mapping{n}/end"), format!("{end:#x}\n").as_bytes());
        put(&root, &format!("{DEVICE}/mapping{n}/page_offset"), format!("{offset:#x}\n").as_bytes());
    }
    let source = open(0, 4).unwrap();
    assert_eq!(
        source.frames(0..4).unwrap(),
        [Some(FrameNo(0x10_0000)), Some(FrameNo(0x20_0000)), Some(FrameNo(0x20_0001)), None]
    );
    put(&root, &format!("{DEVICE}/mapping1/end"), b"0x0\n");
    assert!(matches!(open(0, 1), Err(FrameError::Garbled { .. })), "ends before it starts");
}

#[test]
fn offsets_can_stand_for_frames() {
    let source = OffsetIsPhysical { first: FrameNo(10), len: Bytes(3 * PAGE_SIZE) };
    assert_eq!(source.frames(0..3).unwrap(), [10, 11, 12].map(|n| Some(FrameNo(n))));
    assert!(matches!(source.frame(3 * PAGE_SIZE), Err(FrameError::PastTheEnd { page: 3, pages: 3 })));
    assert!(source.describe().contains("not those of this machine"));
}

#[test]
fn pages_of_our_own_are_in_frames_of_this_machine() {
    let memory = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
    let source = PagemapFrames::own(memory.range()).unwrap();
    assert_eq!(source.frames(0..512).unwrap(), [None; 512], "untouched");
    memory.populate();
    let frames = match source.frames(0..512) {
        Err(error @ FrameError::Hidden { .. }) => return skip(&format!("CAP_SYS_ADMIN ({error})")),
        frames => frames.unwrap(),
    };
    let mut seen: Vec<FrameNo> = frames.into_iter().flatten().collect();
    // Some may have been swapped out, but not many.
    assert!(seen.len() > 256, "{}", seen.len());
    seen.sort_unstable();
    let all = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), all, "each page is in a frame of its own");
    if let Ok(zones) = crate::lru_gen::zones::Zones::read(Path::new("/proc")) {
        assert!(seen.iter().all(|frame| zones.node_of(frame.0).is_some()), "in a zone of this machine");
    }
}

#[test]
fn hugetlb_pages_are_in_one_piece() {
    let Ok(memory) = Memory::hugetlb(PMD_SIZE) else { return skip("a free hugetlb page") };
    memory.write(0);
    let (huge, small) =
        (HugetlbFrames::own(memory.range(), Bytes(PMD_SIZE)).unwrap(), PagemapFrames::own(memory.range()).unwrap());
    let small = match small.frames(0..512) {
        Err(error @ FrameError::Hidden { .. }) => return skip(&format!("CAP_SYS_ADMIN ({error})")),
        frames => frames.unwrap(),
    };
    assert!(small[0].is_some_and(|frame| frame.is_aligned(9)));
    assert_eq!(huge.frames(0..512).unwrap(), small);
}
