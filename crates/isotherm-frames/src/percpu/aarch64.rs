//! The sequences for aarch64, little-endian. Laid out as those for x86-64, where the numbers of the labels are
//! explained.
//!
//! The flag is read by an Acquire, which pairs with the Release of whoever sets the CPU going again: loads are
//! reordered with loads here. The count needs no Release: who reads it on the same CPU sees stores in order, and who
//! stops the CPU has the kernel put a barrier there. The restart in its section of its own may be so far away that the
//! linker puts a veneer in between, which is entitled to x16 and x17.

use super::Geometry;
pub(super) use super::register::Registration;
use core::arch::asm;
use core::mem::offset_of;

/// The thread's `cpu_id`.
///
/// # Safety
///
/// At `offset` from the thread pointer there is an rseq area.
#[inline]
pub(super) unsafe fn cpu_id(offset: isize) -> i32 {
    let cpu_id;
    // SAFETY: reads four bytes of the area, at the offset that rseq(2) fixes.
    unsafe {
        asm!("mrs {area}, tpidr_el0", "add {area}, {area}, {offset}", "ldr {cpu_id:w}, [{area}, 4]",
            area = out(reg) _, cpu_id = out(reg) cpu_id, offset = in(reg) offset,
            options(nostack, preserves_flags, readonly));
    }
    cpu_id
}

/// From 3 to where `{cpu}` is the address of the CPU's words. The signature is a `brk`.
macro_rules! begin {
    ($reset:literal) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "3:\n",
            ".long 0, 0\n",
            ".quad 4f, 5f - 4f, 6f\n",
            ".popsection\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            ".inst 0xd428bc00\n",
            "6:\n",
            "b 2f\n",
            ".popsection\n",
            "2:\n",
            $reset,
            "\n",
            "mrs {area}, tpidr_el0\n",
            "add {area}, {area}, {offset}\n",
            "adrp {cpu}, 3b\n",
            "add {cpu}, {cpu}, :lo12:3b\n",
            "str {cpu}, [{area}, 8]\n",
            "4:\n",
            "ldr {cpu:w}, [{area}, 4]\n",
            "ldr {top:w}, [{geometry}, {cpus}]\n",
            "cmp {cpu:w}, {top:w}\n",
            "b.hs 9f\n",
            "ldr {top}, [{geometry}, {stride}]\n",
            "ldr {area}, [{geometry}, {base}]\n",
            "madd {cpu}, {cpu}, {top}, {area}\n",
            "ldar {top:w}, [{cpu}]\n",
            "cbnz {top:w}, 9f\n",
            // From here on where the list's count is; the limit follows it.
            "add {area}, {cpu}, {count}\n",
        )
    };
}

/// True when `value` was pushed to the list of which the count is `count` bytes and the first entry `entries` bytes
/// from a CPU's first word.
///
/// # Safety
///
/// The geometry is that of memory which holds it, the sequences' alone; `count` and `entries` are those of one list of
/// it.
#[inline]
pub(super) unsafe fn push(geometry: &Geometry, count: usize, entries: usize, value: u32) -> bool {
    let pushed: u32;
    // SAFETY: writes rseq_cs of this thread's area; beyond that, the entry above the top, which is within the capacity
    // since the count is below the limit and that is not above the capacity, and the count. No stack is used.
    unsafe {
        asm!(
            begin!("mov {pushed:w}, wzr"),
            "ldp {top:w}, {limit:w}, [{area}]",
            "cmp {top:w}, {limit:w}",
            "b.hs 9f",
            "add {slot}, {cpu}, {entries}",
            "str {value:w}, [{slot}, {top:w}, uxtw 2]",
            "add {top:w}, {top:w}, 1",
            "mov {pushed:w}, 1",
            "str {top:w}, [{area}]",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            value = in(reg) value,
            area = out(reg) _,
            cpu = out(reg) _,
            top = out(reg) _,
            limit = out(reg) _,
            slot = out(reg) _,
            pushed = out(reg) pushed,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
    }
    pushed != 0
}

/// The top of a list, which is popped; more than 32 bits hold when there is none.
///
/// # Safety
///
/// As [`push`].
#[inline]
pub(super) unsafe fn pop(geometry: &Geometry, count: usize, entries: usize) -> u64 {
    let popped: u64;
    // SAFETY: writes rseq_cs of this thread's area, and the count. Reads the top entry, which was pushed. No stack is
    // used.
    unsafe {
        asm!(
            begin!("mov {popped}, -1"),
            "ldr {top:w}, [{area}]",
            "subs {top:w}, {top:w}, 1",
            "b.lo 9f",
            "add {slot}, {cpu}, {entries}",
            "ldr {popped:w}, [{slot}, {top:w}, uxtw 2]",
            "str {top:w}, [{area}]",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            area = out(reg) _,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            popped = out(reg) popped,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
    }
    popped
}

/// How many of the first of `len` values were pushed, until the limit.
///
/// # Safety
///
/// As [`push`]; `values` are `len` that can be read, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn push_many(
    geometry: &Geometry,
    count: usize,
    entries: usize,
    values: *const u32,
    len: usize,
) -> usize {
    let pushed: usize;
    // SAFETY: as in `push`, for as many entries as there are between the count and the limit, and in `values`.
    unsafe {
        asm!(
            begin!("mov {pushed}, xzr"),
            "ldp {top:w}, {room:w}, [{area}]",
            "subs {room:w}, {room:w}, {top:w}",
            "b.ls 9f",
            "cmp {room}, {len}",
            "csel {room}, {len}, {room}, hi",
            "add {slot}, {cpu}, {entries}",
            "add {slot}, {slot}, {top}, lsl 2",
            // Four at a time from the end, then what is left at the front.
            "mov {left}, {room}",
            "7:",
            "subs {left}, {left}, 4",
            "b.lo 8f",
            "add {cpu}, {values}, {left}, lsl 2",
            "ldr {four:q}, [{cpu}]",
            "add {cpu}, {slot}, {left}, lsl 2",
            "str {four:q}, [{cpu}]",
            "b 7b",
            "8:",
            "adds {left}, {left}, 4",
            "b.eq 8f",
            "7:",
            "sub {left}, {left}, 1",
            "ldr {pushed:w}, [{values}, {left}, lsl 2]",
            "str {pushed:w}, [{slot}, {left}, lsl 2]",
            "cbnz {left}, 7b",
            "8:",
            "mov {pushed}, {room}",
            "add {top:w}, {top:w}, {room:w}",
            "str {top:w}, [{area}]",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            values = in(reg) values,
            len = in(reg) len,
            area = out(reg) _,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            room = out(reg) _,
            left = out(reg) _,
            pushed = out(reg) pushed,
            four = out(vreg) _,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
    }
    pushed
}

/// How many were popped into the first of `len` values, as they lay.
///
/// # Safety
///
/// As [`push`]; `values` are `len` that can be written, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn pop_many(
    geometry: &Geometry,
    count: usize,
    entries: usize,
    values: *mut u32,
    len: usize,
) -> usize {
    let popped: usize;
    // SAFETY: as in `pop`, for as many entries as there are in the list and in `values`, which are written to as well:
    // over again after a restart, which nobody sees.
    unsafe {
        asm!(
            begin!("mov {popped}, xzr"),
            "ldr {top:w}, [{area}]",
            "cbz {top:w}, 9f",
            "cmp {len}, {top}",
            "csel {room}, {top}, {len}, hi",
            "sub {top}, {top}, {room}",
            "add {slot}, {cpu}, {entries}",
            "add {slot}, {slot}, {top}, lsl 2",
            // Four at a time from the end, then what is left at the front.
            "mov {left}, {room}",
            "7:",
            "subs {left}, {left}, 4",
            "b.lo 8f",
            "add {cpu}, {slot}, {left}, lsl 2",
            "ldr {four:q}, [{cpu}]",
            "add {cpu}, {values}, {left}, lsl 2",
            "str {four:q}, [{cpu}]",
            "b 7b",
            "8:",
            "adds {left}, {left}, 4",
            "b.eq 8f",
            "7:",
            "sub {left}, {left}, 1",
            "ldr {popped:w}, [{slot}, {left}, lsl 2]",
            "str {popped:w}, [{values}, {left}, lsl 2]",
            "cbnz {left}, 7b",
            "8:",
            "mov {popped}, {room}",
            "str {top:w}, [{area}]",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            values = in(reg) values,
            len = in(reg) len,
            area = out(reg) _,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            room = out(reg) _,
            left = out(reg) _,
            popped = out(reg) popped,
            four = out(vreg) _,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
    }
    popped
}
