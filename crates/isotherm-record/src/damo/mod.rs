//! Recordings of damo, the tool of the kernel's DAMON: read into snapshots, and written from them.
//!
//! Used by `isotherm convert` and by reports. [`read`] takes what damo writes (zlib-compressed JSON, plain JSON, the text of
//! `perf script`); [`write`] makes the first of these only, since damo 3.4 does not recognize plain JSON when it reads.
//!
//! # What a count means
//!
//! DAMON looks at one page of each region, chosen at random, once a *sampling interval* s, and counts how often it was accessed
//! since: `nr_accesses`, out of A / s looks in an *aggregation interval* A. A page that is accessed every T >= s, at a moment
//! unrelated to the looks, is found accessed with probability s / T. That is linear in the rate 1 / T, so for pages of mixed
//! heat the expected count depends on nothing but their mean rate, which a [`Region`](isotherm_heat::Region) has:
//!
//! ```text
//!   samples = round(A * rate_hz), at most A / s          rate_hz = samples / A
//!   16 ms between accesses, A = 2 s:  2 * 62.5 = 125 of 400         125 / 2 s = 62.5 Hz
//! ```
//!
//! The right side is also how damo turns counts into hertz, so both tools print one figure. Accesses at random moments would
//! give `1 - exp(-s * rate)` instead, which is the same where it matters (s much shorter than T), needs s to be known when
//! reading, and makes the rate of a mixed region depend on the mixture.
//!
//! One count is a rate of 1 / A and the highest rate is 1 / s. DAMON's defaults, 5 ms and 100 ms, have 20 levels, of which the
//! lowest is 10 Hz: memory accessed once a second would be told as idle. [`ExportOptions`] therefore keep the 5 ms, which is
//! shorter than any interval that is measured, and take for A the length of a snapshot, a second or more: 200 levels or more.
//!
//! damo takes snapshots to follow each other at A: it adds their counts up for a longer A (`damo adjust`), and knows of no
//! other length in text. Exports keep to that. With an A of several snapshots, they have every so many-th: a snapshot says what
//! is known at its end, so the last one speaks for all of A.
//!
//! # The rest
//!
//! - `age` is in microseconds and in whole aggregation intervals. For regions with a count of 0 it is idle time less one
//!   A, because damo takes age plus A for the idle time of such a region. Read back, what was idle for t gets the interval that is
//!   guessed for pages not seen for t ([`extrapolated`](isotherm_heat::Interval::extrapolated)).
//! - Regions nothing is known of are left out: a count of 0 would claim that they are idle.
//! - `target_id` is the pid. damo itself numbers targets from 0, so a pid in what was read may be such a number.
//! - DAMON does not say what is resident. Exports do: they name the filter `unmapped`, and `sz_filter_passed` is what it lets
//!   pass. Without that filter all of a region is taken to be resident.
//! - Names, start times and the description of the run are in a field `isotherm`, which damo skips and does not keep.
//! - Histograms, mappings, huge pages and costs are not in damo's format. damo writes mappings into a second file and never
//!   reads it, so neither do we write nor read that.

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
