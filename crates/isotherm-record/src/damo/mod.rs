//! Recordings of damo, the tool for the kernel's DAMON: reads them into snapshots, and writes them from snapshots.
//!
//! Used by `isotherm convert` and by reports. [`mod@read`] accepts what damo writes (zlib-compressed JSON, plain JSON, the
//! text of `perf script`). [`mod@write`] creates only the first of these, since damo 3.4 does not recognize plain JSON when
//! it reads.
//!
//! # What a count means
//!
//! Once per *sampling interval* s, DAMON checks one page of each region, chosen at random: was it accessed within s?
//! `nr_accesses` counts the checks that found an access, out of A / s checks in an *aggregation interval* A. A page
//! that is accessed every T >= s, at moments unrelated to the checks, is found accessed with probability s / T. That is
//! linear in the rate 1 / T. So for pages of mixed heat the expected count depends only on their mean rate, which a
//! [`Region`](isotherm_heat::Region) has:
//!
//! ```text
//!   samples = round(A * rate_hz), at most A / s          rate_hz = samples / A
//!   16 ms between accesses, A = 2 s:  2 * 62.5 = 125 of 400         125 / 2 s = 62.5 Hz
//! ```
//!
//! The right side is also how damo turns counts into hertz, so both tools print the same figure. Accesses at random
//! moments would give `1 - exp(-s * rate)` instead. That is the same where it matters (s much shorter than T). But a
//! reader would have to know s, and the rate of a mixed region would depend on the mixture.
//!
//! One count is a rate of 1 / A, and the highest rate is 1 / s. DAMON's defaults, 5 ms and 100 ms, have 20 levels, of
//! which the lowest is 10 Hz: memory accessed once a second would be reported as idle. So [`ExportOptions`] leaves s at
//! 5 ms, which is shorter than any measured interval. For A it uses the length of a snapshot, a second or more: 200
//! levels or more.
//!
//! damo assumes that snapshots follow each other at A. It adds their counts up for a longer A (`damo adjust`), and has
//! no other length in text. Exports conform to that. If A is several snapshots long, only one snapshot for each A is
//! exported. A snapshot describes what is known at its end, so the last one stands for all of A.
//!
//! # The rest
//!
//! - `age` is in microseconds and in whole aggregation intervals. For regions with a count of 0 it is idle time less
//!   one A, because damo uses age plus A as the idle time of such a region. When read back, memory that was idle for t
//!   gets the interval estimated for pages not seen for t ([`extrapolated`](isotherm_heat::Interval::extrapolated)).
//! - Regions of which nothing is known are omitted: a count of 0 would claim that they are idle.
//! - `target_id` is the pid. damo itself numbers targets from 0, so a pid read from a file may be such a number.
//! - DAMON does not report what is resident. Exports do: they name the filter `unmapped`, and `sz_filter_passed` is the
//!   memory that passes it. Without that filter, all of a region is assumed to be resident.
//! - Names, start times and the description of the run are in a field `isotherm`, which damo skips and does not
//!   preserve.
//! - Histograms, mappings, huge pages and costs are not in damo's format. damo writes mappings into a second file and
//!   never reads it. We neither write nor read that file.

mod charged;
mod count;
mod join;
mod model;
mod number;
mod read;
mod text;
mod write;

#[cfg(test)]
mod tests;

pub use read::{DamoRecording, read, read_within};
pub use write::{ExportOptions, Exported, write};
