//! The sequences for x86-64.
//!
//! All have the same layout: `sequence!` emits the common part, its caller the work.
//!
//! ```text
//! 3  the descriptor, in its own section: the range from 4 to 5, and the abort address 6
//! 6  (elsewhere, after the signature that the kernel checks) jump back to 2
//! 2  result = nothing done; rseq_cs = 3
//! 4  address of the CPU's words; jump to 9 if it has none or is stopped
//!    ... the work, which ends with storing the count ...
//! 5
//! 9
//! ```
//!
//! A restart finds all registers as they were at the abort. So inputs are not overwritten, and results are reset at 2.
//! x86-64 does not reorder loads with loads, so the flag is read as if by an Acquire.

use super::layout::{Area, Geometry, List};
pub(super) use super::register::{allow_restarts, area, restart};
use core::arch::asm;
use core::mem::offset_of;

/// The thread's `cpu_id`, negative if the thread is not registered.
#[inline]
pub(super) fn cpu_id(area: Area) -> i32 {
    let cpu_id;
    // SAFETY: every thread has an area at this offset, registered or not, because `__rseq_size` says that there are
    // areas. Reads four bytes of it, at the offset that rseq(2) defines.
    unsafe {
        asm!("mov {cpu_id:e}, dword ptr fs:[{offset} + 4]", cpu_id = out(reg) cpu_id, offset = in(reg) area.offset,
            options(nostack, preserves_flags, readonly));
    }
    cpu_id
}

/// From 3 to where `{cpu}` is the address of the CPU's words. The signature is the operand of a `ud1`, so that
/// disassemblers stay in step.
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

/// A sequence on a list. `$reset` sets the result to nothing done; the `$work` ends with storing the count.
///
/// In the work, `{cpu}` points to the CPU's words. The list's count is `{count}` bytes and its first entry `{entries}`
/// bytes from there. The work may use `{top}` and `{slot}`. `$operands` are what it needs in addition.
macro_rules! sequence {
    ($geometry:ident, $list:ident, $reset:literal, [$($work:expr),* $(,)?], $($operands:tt)*) => {
        asm!(
            begin!($reset),
            $($work,)*
            "5:",
            "9:",
            geometry = in(reg) $geometry,
            offset = in(reg) $geometry.area.offset,
            count = in(reg) $list.count,
            entries = in(reg) $list.entries,
            cpu = out(reg) _,
            top = out(reg) _,
            slot = out(reg) _,
            $($operands)*
            cpus = const offset_of!(Geometry, cpus),
            stride = const offset_of!(Geometry, stride),
            base = const offset_of!(Geometry, base),
            options(nostack),
        )
    };
}

/// Copies `{room}` entries, at least one, from `$from` to `$to`: four at a time from the end, then the rest at the
/// front. Overwrites `{moved}`, `{left}` and `{four}`.
macro_rules! copy {
    ($from:literal, $to:literal) => {
        concat!(
            "mov {left}, {room}\n",
            "7:\n",
            "sub {left}, 4\n",
            "jb 8f\n",
            "movups {four}, xmmword ptr [",
            $from,
            " + {left} * 4]\n",
            "movups xmmword ptr [",
            $to,
            " + {left} * 4], {four}\n",
            "jmp 7b\n",
            "8:\n",
            "add {left}, 4\n",
            "jz 8f\n",
            "7:\n",
            "mov {moved:e}, dword ptr [",
            $from,
            " + {left} * 4 - 4]\n",
            "mov dword ptr [",
            $to,
            " + {left} * 4 - 4], {moved:e}\n",
            "dec {left}\n",
            "jnz 7b\n",
            "8:\n",
        )
    };
}

/// A sequence that moves up to `$len` entries. The work leaves their number in `{moved}`. In addition to what `copy!`
/// uses, it may use `{room}`.
macro_rules! sequence_of_many {
    ($geometry:ident, $list:ident, $values:ident, $len:ident, $moved:ident, [$($work:expr),* $(,)?]) => {
        sequence!(
            $geometry,
            $list,
            "xor {moved:e}, {moved:e}",
            [$($work),*],
            values = in(reg) $values,
            len = in(reg) $len,
            room = out(reg) _,
            left = out(reg) _,
            moved = out(reg) $moved,
            four = out(xmm_reg) _,
        )
    };
}

/// True if `value` was pushed to the list.
///
/// # Safety
///
/// The geometry describes memory that can hold it and that only the sequences access. The list is one of its lists.
#[inline]
pub(super) unsafe fn push(geometry: &Geometry, list: List, value: u32) -> bool {
    let pushed: u32;
    // SAFETY: writes rseq_cs of this thread's area, the entry above the top, and the count. The entry is within the
    // capacity: the count is below the limit, and the limit is at most the capacity. No stack memory is used.
    unsafe {
        sequence!(
            geometry,
            list,
            "xor {pushed:e}, {pushed:e}",
            [
                "mov {top:e}, dword ptr [{cpu} + {count}]",
                "cmp {top:e}, dword ptr [{cpu} + {count} + 4]",
                "jae 9f",
                "lea {slot}, [{cpu} + {entries}]",
                "mov dword ptr [{slot} + {top} * 4], {value:e}",
                "inc {top:e}",
                "mov {pushed:e}, 1",
                "mov dword ptr [{cpu} + {count}], {top:e}",
            ],
            value = in(reg) value,
            pushed = out(reg) pushed,
        );
    }
    pushed != 0
}

/// Pops the top of a list. The result needs more than 32 bits if there is none.
///
/// # Safety
///
/// As [`push`].
#[inline]
pub(super) unsafe fn pop(geometry: &Geometry, list: List) -> u64 {
    let popped: u64;
    // SAFETY: writes rseq_cs of this thread's area, and the count. Reads the top entry, which was pushed before. No
    // stack memory is used.
    unsafe {
        sequence!(
            geometry,
            list,
            "mov {popped}, -1",
            [
                "mov {top:e}, dword ptr [{cpu} + {count}]",
                "sub {top:e}, 1",
                "jb 9f",
                "lea {slot}, [{cpu} + {entries}]",
                "mov {popped:e}, dword ptr [{slot} + {top} * 4]",
                "mov dword ptr [{cpu} + {count}], {top:e}",
            ],
            popped = out(reg) popped,
        );
    }
    popped
}

/// Pushes the first of `len` values up to the limit; returns how many.
///
/// # Safety
///
/// As [`push`]. `values` are `len` readable entries, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn push_many(geometry: &Geometry, list: List, values: *const u32, len: usize) -> usize {
    let pushed: usize;
    // SAFETY: as in `push`, for as many entries as fit between the count and the limit, and as `values` has.
    unsafe {
        sequence_of_many!(
            geometry,
            list,
            values,
            len,
            pushed,
            [
                "mov {top:e}, dword ptr [{cpu} + {count}]",
                "mov {room:e}, dword ptr [{cpu} + {count} + 4]",
                "sub {room:e}, {top:e}",
                "jbe 9f",
                "cmp {room}, {len}",
                "cmova {room}, {len}",
                "lea {slot}, [{cpu} + {entries}]",
                "lea {slot}, [{slot} + {top} * 4]",
                copy!("{values}", "{slot}"),
                "mov {moved}, {room}",
                "add {top:e}, {room:e}",
                "mov dword ptr [{cpu} + {count}], {top:e}",
            ]
        );
    }
    pushed
}

/// Pops into the first of `len` values, in list order; returns how many.
///
/// # Safety
///
/// As [`push`]. `values` are `len` writable entries, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn pop_many(geometry: &Geometry, list: List, values: *mut u32, len: usize) -> usize {
    let popped: usize;
    // SAFETY: as in `pop`, for as many entries as the list and `values` have. `values` is written to as well, and again
    // after a restart, which nothing else can observe.
    unsafe {
        sequence_of_many!(
            geometry,
            list,
            values,
            len,
            popped,
            [
                "mov {top:e}, dword ptr [{cpu} + {count}]",
                "test {top:e}, {top:e}",
                "jz 9f",
                "mov {room}, {len}",
                "cmp {room}, {top}",
                "cmova {room}, {top}",
                "sub {top}, {room}",
                "lea {slot}, [{cpu} + {entries}]",
                "lea {slot}, [{slot} + {top} * 4]",
                copy!("{slot}", "{values}"),
                "mov {moved}, {room}",
                "mov dword ptr [{cpu} + {count}], {top:e}",
            ]
        );
    }
    popped
}
