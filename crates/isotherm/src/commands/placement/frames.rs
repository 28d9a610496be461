//! The frames behind the pages of processes, from `/proc/PID/pagemap`.
//!
//! Goes mapping by mapping, neighbours joined, so that 65,530 mappings side by side are one; large ones are asked first where pages are,
//! so that a terabyte that was reserved and never touched costs nothing. A frame mapped several times is one frame. What has no frame is
//! counted: swapped out, or absent. A process that ends meanwhile is told as left out, though what was read of it so far counts; if it was
//! named, that is an error.

use super::heat::Heated;
use crate::watch::Stop;
use anyhow::{Context, Result, bail};
use isotherm_model::direct_mapped::{Footprint, Gather};
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::proc::{MapEntry, Proc};
use isotherm_units::{Addr, AddrRange, FrameNo, PAGE_SIZE};
use isotherm_view::placement::PlacementTarget;
use std::io;

/// Pages read in one go: 256 KiB of entries.
const CHUNK: u64 = 1 << 15;
/// From so many pages on it is asked first where pages are.
const LARGE: u64 = 1 << 14;
/// Stretches with no more than so many pages between them are read as one: reading an absent page is cheaper than another call.
const GAP: u64 = 512;

/// What was found.
pub struct Found {
    pub footprint: Footprint,
    /// Pages with a frame, each mapping of it by itself.
    pub pages: u64,
    pub targets: Vec<PlacementTarget>,
    pub left_out: Vec<(u32, String)>,
}

/// Frames on the way.
pub struct Frames {
    proc: Proc,
    gather: Gather,
    targets: Vec<PlacementTarget>,
    left_out: Vec<(u32, String)>,
}

const HIDDEN: &str = "frame numbers in /proc/PID/pagemap are hidden from you: run as root, or with CAP_SYS_ADMIN in the first user \
                      namespace";

/// Fails if the kernel does not tell us frames: looked up is one of our own, which has to be there.
pub fn check_visible(proc: &Proc) -> Result<()> {
    let here = std::hint::black_box(0_u8);
    let page = Addr((&raw const here).addr() as u64).page();
    let read = Pagemap::open(proc.root(), std::process::id())
        .and_then(|map| map.read(AddrRange::new(page.addr(), Addr(page.addr().0 + PAGE_SIZE))));
    match read.context("read /proc/self/pagemap")?.first() {
        Some((_, entry)) if entry.is_present() && entry.frame().is_none() => bail!(HIDDEN),
        _ => Ok(()),
    }
}

impl Frames {
    pub fn new(gather: Gather) -> Frames {
        Frames { proc: Proc::default(), gather, targets: Vec::new(), left_out: Vec::new() }
    }

    /// Adds the frames of a process. One that has ended, or may not be read, is left out; if it was named, that is an error.
    pub fn add(&mut self, process: &Heated, stop: &Stop) -> Result<()> {
        match self.read(process, stop) {
            Ok(target) if target.resident_pages + target.swapped_pages > 0 => self.targets.push(target),
            Ok(_) if process.named => bail!("process {} has no user memory, or has ended", process.pid),
            Ok(_) => {}
            Err(error) if process.named => return Err(error),
            Err(error) => self.left_out.push((process.pid, format!("{error:#}"))),
        }
        Ok(())
    }

    /// All that was found; an error if that is nothing.
    pub fn finish(self) -> Result<Found> {
        if self.gather.pages() == 0 {
            match self.left_out.first() {
                Some((pid, why)) => bail!("no frames were found; process {pid}: {why}"),
                None => bail!("no frames were found: no process with memory of its own"),
            }
        }
        let pages = self.gather.pages();
        Ok(Found { footprint: self.gather.finish(), pages, targets: self.targets, left_out: self.left_out })
    }

    fn read(&mut self, process: &Heated, stop: &Stop) -> Result<PlacementTarget> {
        let pid = process.pid;
        match self.proc.stat(pid)? {
            stat if stat.is_kernel_thread() => bail!("process {pid} has no user memory: it is a kernel thread"),
            stat if stat.has_ended() => bail!("process {pid} has ended"),
            _ => {}
        }
        // Opened before it is compared: it stays with the memory that it was opened on, whatever gets the pid.
        let pagemap = Pagemap::open(self.proc.root(), pid).map_err(|e| failed(pid, e))?;
        let identity = self.proc.identity(pid)?;
        if process.start_ticks.is_some_and(|then| then != identity.start_ticks) {
            bail!("process {pid} has ended, and another one has its pid");
        }
        let maps = self.proc.maps(pid)?;
        let ranges = joined(&maps);
        let mut target = PlacementTarget {
            pid,
            comm: process.comm.clone(),
            resident_pages: 0,
            swapped_pages: 0,
            absent_pages: 0,
            unknown_heat_pages: process.heat.as_ref().map(|_| 0),
        };
        let mut at = 0;
        for range in &ranges {
            for part in parts(&pagemap, *range).map_err(|e| failed(pid, e))? {
                if stop.is_set() {
                    bail!("stopped before all frames were read");
                }
                self.read_part(&pagemap, part, process, &mut at, &mut target)?;
            }
        }
        // A list that is cut short because the process ended is no error to the kernel.
        if !self.proc.is_alive(identity)? {
            bail!("process {pid} ended while it was read; what was read of it counts");
        }
        let mapped: u64 = ranges.iter().map(|range| range.len().pages()).sum();
        target.absent_pages = mapped.saturating_sub(target.resident_pages + target.swapped_pages);
        Ok(target)
    }

    fn read_part(
        &mut self,
        pagemap: &Pagemap,
        part: AddrRange,
        process: &Heated,
        at: &mut usize,
        target: &mut PlacementTarget,
    ) -> Result<()> {
        for (page, entry) in pagemap.read(part).map_err(|e| failed(process.pid, e))? {
            if !entry.is_present() {
                target.swapped_pages += u64::from(entry.is_swapped());
                continue;
            }
            let Some(frame) = entry.frame() else { bail!(HIDDEN) };
            let rate = process.heat.as_ref().and_then(|heat| heat.rate_at(page, at));
            if let (None, Some(unknown)) = (rate, &mut target.unknown_heat_pages) {
                *unknown += 1;
            }
            target.resident_pages += 1;
            self.gather.add(FrameNo(frame), rate.unwrap_or_default());
        }
        Ok(())
    }
}

fn failed(pid: u32, error: io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => ": run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE",
        _ => "",
    };
    anyhow::Error::new(error).context(format!("read /proc/{pid}/pagemap{advice}"))
}

/// What user programs have mapped, with neighbours as one.
fn joined(maps: &[MapEntry]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for range in maps.iter().filter(|map| map.is_monitorable()).map(|map| map.range) {
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// What to read of a range: parts of at most a chunk, in order, in which all pages with a frame lie.
fn parts(pagemap: &Pagemap, range: AddrRange) -> io::Result<Vec<AddrRange>> {
    let populated = if range.len().pages() < LARGE { None } else { populated(pagemap, range)? };
    Ok(populated.unwrap_or_else(|| vec![range]).into_iter().flat_map(chunks).collect())
}

/// Where pages are in a range, small gaps included; `None` if the kernel cannot tell.
fn populated(pagemap: &Pagemap, range: AddrRange) -> io::Result<Option<Vec<AddrRange>>> {
    let (mut found, mut from): (Vec<AddrRange>, Addr) = (Vec::new(), range.start);
    while from < range.end {
        let Some((stretches, until)) = pagemap.populated(AddrRange::new(from, range.end))? else { return Ok(None) };
        for stretch in stretches {
            match found.last_mut() {
                Some(last) if stretch.start.0 - last.end.0 <= GAP * PAGE_SIZE => last.end = stretch.end,
                _ => found.push(stretch),
            }
        }
        if until <= from {
            // It did not get on: the rest is read page by page.
            found.push(AddrRange::new(from.max(found.last().map_or(from, |last| last.end)), range.end));
            break;
        }
        from = until;
    }
    Ok(Some(found))
}

fn chunks(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    (range.start.0..range.end.0)
        .step_by(usize::try_from(CHUNK * PAGE_SIZE).unwrap_or(usize::MAX))
        .map(move |start| AddrRange::new(Addr(start), Addr((start + CHUNK * PAGE_SIZE).min(range.end.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u64, count: u64) -> AddrRange {
        AddrRange::new(Addr(first * PAGE_SIZE), Addr((first + count) * PAGE_SIZE))
    }

    #[test]
    fn chunks_tile_a_range() {
        let range = pages(7, 2 * CHUNK + 5);
        let all: Vec<AddrRange> = chunks(range).collect();
        assert_eq!(all.len(), 3);
        assert!(all[0].start == range.start && all[2].end == range.end);
        assert!(all.windows(2).all(|w| w[0].end == w[1].start) && all[2].len().pages() == 5);
        assert_eq!(chunks(pages(3, 0)).count(), 0);
    }
}
