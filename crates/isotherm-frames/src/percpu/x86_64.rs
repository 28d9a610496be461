//! The sequences for x86-64.
//!
//! Each is laid out alike, and `begin!` writes what all have in common:
//!
//! ```text
//! 3  the descriptor, in a section of its own: from 4 up to 5, and 6 to go to when it is interrupted there
//! 6  (elsewhere, after the signature that the kernel wants to see) back to 2
//! 2  no result yet; rseq_cs = 3
//! 4  the CPU's words; out to 9 if there are none, or it is stopped
//!    ... the work, which ends with storing the count ...
//! 5
//! 9
//! ```
//!
//! A restart finds all registers as they were when the sequence was left, so inputs are not written to, and results are
//! reset at 2. Loads are not reordered with loads here, so the flag is read as if by an Acquire.

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
        asm!("mov {cpu_id:e}, dword ptr fs:[{offset} + 4]", cpu_id = out(reg) cpu_id, offset = in(reg) offset,
            options(nostack, preserves_flags, readonly));
    }
    cpu_id
}

/// From 3 to where `{cpu}` is the address of the CPU's words. The signature is disguised as the operand of a `ud1`, so
/// that what is disassembled stays in step.
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
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "6:\n",
            "jmp 2f\n",
            ".popsection\n",
            "2:\n",
            $reset,
            "\n",
            "lea {cpu}, [rip + 3b]\n",
            "mov qword ptr fs:[{offset} + 8], {cpu}\n",
            "4:\n",
            "mov {cpu:e}, dword ptr fs:[{offset} + 4]\n",
            "cmp {cpu:e}, dword ptr [{geometry} + {cpus}]\n",
            "jae 9f\n",
            "imul {cpu}, qword ptr [{geometry} + {stride}]\n",
            "add {cpu}, qword ptr [{geometry} + {base}]\n",
            "cmp dword ptr [{cpu}], 0\n",
            "jne 9f\n",
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
            begin!("xor {pushed:e}, {pushed:e}"),
            "mov {top:e}, dword ptr [{cpu} + {count}]",
            "cmp {top:e}, dword ptr [{cpu} + {count} + 4]",
            "jae 9f",
            "lea {slot}, [{cpu} + {entries}]",
            "mov dword ptr [{slot} + {top} * 4], {value:e}",
            "inc {top:e}",
            "mov {pushed:e}, 1",
            "mov dword ptr [{cpu} + {count}], {top:e}",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            value = in(reg) value,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            pushed = out(reg) pushed,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
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
            "mov {top:e}, dword ptr [{cpu} + {count}]",
            "sub {top:e}, 1",
            "jb 9f",
            "lea {slot}, [{cpu} + {entries}]",
            "mov {popped:e}, dword ptr [{slot} + {top} * 4]",
            "mov dword ptr [{cpu} + {count}], {top:e}",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            popped = out(reg) popped,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
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
            begin!("xor {pushed:e}, {pushed:e}"),
            "mov {top:e}, dword ptr [{cpu} + {count}]",
            "mov {room:e}, dword ptr [{cpu} + {count} + 4]",
            "sub {room:e}, {top:e}",
            "jbe 9f",
            "cmp {room}, {len}",
            "cmova {room}, {len}",
            "lea {slot}, [{cpu} + {entries}]",
            "lea {slot}, [{slot} + {top} * 4]",
            // Four at a time from the end, then what is left at the front.
            "mov {left}, {room}",
            "7:",
            "sub {left}, 4",
            "jb 8f",
            "movups {four}, xmmword ptr [{values} + {left} * 4]",
            "movups xmmword ptr [{slot} + {left} * 4], {four}",
            "jmp 7b",
            "8:",
            "add {left}, 4",
            "jz 8f",
            "7:",
            "mov {pushed:e}, dword ptr [{values} + {left} * 4 - 4]",
            "mov dword ptr [{slot} + {left} * 4 - 4], {pushed:e}",
            "dec {left}",
            "jnz 7b",
            "8:",
            "mov {pushed}, {room}",
            "add {top:e}, {room:e}",
            "mov dword ptr [{cpu} + {count}], {top:e}",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            values = in(reg) values,
            len = in(reg) len,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            room = out(reg) _,
            left = out(reg) _,
            pushed = out(reg) pushed,
            four = out(xmm_reg) _,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
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
            begin!("xor {popped:e}, {popped:e}"),
            "mov {top:e}, dword ptr [{cpu} + {count}]",
            "test {top:e}, {top:e}",
            "jz 9f",
            "mov {room}, {len}",
            "cmp {room}, {top}",
            "cmova {room}, {top}",
            "sub {top}, {room}",
            "lea {slot}, [{cpu} + {entries}]",
            "lea {slot}, [{slot} + {top} * 4]",
            "mov {left}, {room}",
            "7:",
            "sub {left}, 4",
            "jb 8f",
            "movups {four}, xmmword ptr [{slot} + {left} * 4]",
            "movups xmmword ptr [{values} + {left} * 4], {four}",
            "jmp 7b",
            "8:",
            "add {left}, 4",
            "jz 8f",
            "7:",
            "mov {popped:e}, dword ptr [{slot} + {left} * 4 - 4]",
            "mov dword ptr [{values} + {left} * 4 - 4], {popped:e}",
            "dec {left}",
            "jnz 7b",
            "8:",
            "mov {popped}, {room}",
            "mov dword ptr [{cpu} + {count}], {top:e}",
            "5:",
            "9:",
            geometry = in(reg) geometry,
            offset = in(reg) geometry.registration.offset,
            count = in(reg) count,
            entries = in(reg) entries,
            values = in(reg) values,
            len = in(reg) len,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            room = out(reg) _,
            left = out(reg) _,
            popped = out(reg) popped,
            four = out(xmm_reg) _,
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            options(nostack),
        );
    }
    popped
}
