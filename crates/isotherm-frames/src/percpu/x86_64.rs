//! The sequences for x86-64.
//!
//! Each is laid out alike: `sequence!` writes what all have in common, its caller the work.
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

use super::layout::{Area, Geometry, List};
pub(super) use super::register::{allow_restarts, area, restart};
use core::arch::asm;
use core::mem::offset_of;

/// The thread's `cpu_id`, negative where it is not registered.
#[inline]
pub(super) fn cpu_id(area: Area) -> i32 {
    let cpu_id;
    // SAFETY: every thread has an area at this offset, registered or not, since `__rseq_size` says that there are areas;
    // reads four bytes of it, at the offset that rseq(2) fixes.
    unsafe {
        asm!("mov {cpu_id:e}, dword ptr fs:[{offset} + 4]", cpu_id = out(reg) cpu_id, offset = in(reg) area.offset,
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

/// A sequence on a list: `$reset` makes the result that of nothing done, the `$work` ends with storing the count.
///
/// The work finds the CPU's words at `{cpu}`, the list's count `{count}` bytes and its first entry `{entries}` bytes from
/// there, and may use `{top}` and `{slot}`. What it needs beside these are `$operands`.
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

/// Copies `{room}` entries, at least one, from `$from` to `$to`: four at a time from the end, then what is left at the
/// front. `{moved}`, `{left}` and `{four}` are overwritten.
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

/// A sequence that moves up to `$len` entries, of which the work leaves the number in `{moved}`. It may use `{room}` beside what
/// `copy!` does.
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

/// True when `value` was pushed to the list.
///
/// # Safety
///
/// The geometry is that of memory which holds it, the sequences' alone; the list is one of its.
#[inline]
pub(super) unsafe fn push(geometry: &Geometry, list: List, value: u32) -> bool {
    let pushed: u32;
    // SAFETY: writes rseq_cs of this thread's area; beyond that, the entry above the top, which is within the capacity
    // since the count is below the limit and that is not above the capacity, and the count. No stack is used.
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

/// The top of a list, which is popped; more than 32 bits hold when there is none.
///
/// # Safety
///
/// As [`push`].
#[inline]
pub(super) unsafe fn pop(geometry: &Geometry, list: List) -> u64 {
    let popped: u64;
    // SAFETY: writes rseq_cs of this thread's area, and the count. Reads the top entry, which was pushed. No stack is
    // used.
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

/// How many of the first of `len` values were pushed, until the limit.
///
/// # Safety
///
/// As [`push`]; `values` are `len` that can be read, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn push_many(geometry: &Geometry, list: List, values: *const u32, len: usize) -> usize {
    let pushed: usize;
    // SAFETY: as in `push`, for as many entries as there are between the count and the limit, and in `values`.
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

/// How many were popped into the first of `len` values, as they lay.
///
/// # Safety
///
/// As [`push`]; `values` are `len` that can be written, at least one and few enough for one sequence.
#[inline]
pub(super) unsafe fn pop_many(geometry: &Geometry, list: List, values: *mut u32, len: usize) -> usize {
    let popped: usize;
    // SAFETY: as in `pop`, for as many entries as there are in the list and in `values`, which are written to as well:
    // over again after a restart, which nobody sees.
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
