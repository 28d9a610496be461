//! The frames behind the pages of processes, from `/proc/PID/pagemap`.
//!
//! Reads mapping by mapping. Adjacent mappings are joined, so that 65,530 adjacent mappings are one range. Large ranges
//! are first scanned for populated parts, so that a terabyte that was reserved and never touched costs nothing. A frame
//! that is mapped several times is one frame. Pages without a frame are counted as swapped out or absent. Pages of
//! zeros are counted too: they share one frame among all processes that read memory and never wrote it.
//!
//! A process that ends or execs meanwhile is skipped with everything that was read of it, and the report lists it. If
//! the user named it, that is an error. The kernel returns no error in either case: the pagemap of memory that is gone
//! is empty, and the process may not be a zombie yet. So after reading, the pagemap is asked whether the memory still
//! exists.

use super::error::Error;
use crate::direct_mapped::{Footprint, Gather};
use crate::heat::Process;
use crate::placed::FrameOwners;
use crate::progress::Progress;
use crate::report::{PlacementTarget, SkippedProcess};
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::pagemap_zero::ZeroFrames;
use isotherm_sys::proc::{Identity, MapEntry, Proc};
use isotherm_units::{Addr, AddrRange, FrameNo, PAGE_SIZE};
use std::io;

/// Pages read in one go: 256 KiB of entries.
const CHUNK: u64 = 1 << 15;
/// Ranges of at least this many pages are first scanned for populated parts.
const LARGE: u64 = 1 << 14;
/// Populated parts with at most this many pages between them are read together: reading an absent page is cheaper than
/// another call.
const GAP: u64 = 512;

/// Frames found so far.
struct Frames {
    proc: Proc,
    /// Frames of processes that were read completely.
    gather: Gather,
    /// A copy of the initial [`Frames::gather`], for the process that is being read.
    empty: Gather,
    zeros: ZeroFrames,
    targets: Vec<PlacementTarget>,
    left_out: Vec<SkippedProcess>,
}

/// Reads the frames of all these processes, one step each. `weighed_by` describes what the weights come from; `None` if
/// all frames have the same weight.
pub fn collect(
    processes: &[Process],
    weighed_by: Option<String>,
    progress: &mut dyn Progress,
) -> Result<(Footprint, FrameOwners), Error> {
    progress.begin(processes.len() as u64);
    let mut frames =
        Frames::at(Proc::default(), if weighed_by.is_some() { Gather::weighted() } else { Gather::uniform() })?;
    for process in processes {
        if progress.is_stopped() {
            return Err(Error::Stopped);
        }
        frames.add(process, progress)?;
        progress.step();
    }
    progress.end();
    frames.finish(weighed_by)
}

/// Fails if the kernel hides frame numbers. Checks a page of our own that has to be present.
pub fn check_visible(proc: &Proc) -> Result<(), Error> {
    let here = std::hint::black_box(0_u8);
    let page = Addr((&raw const here).addr() as u64).page();
    let read = Pagemap::open(proc.root(), std::process::id())
        .and_then(|map| map.read(AddrRange::new(page.addr(), Addr(page.addr().0 + PAGE_SIZE))));
    match read.map_err(Error::OwnPagemap)?.first() {
        Some((_, entry)) if entry.is_present() && entry.frame().is_none() => Err(Error::Hidden),
        _ => Ok(()),
    }
}

impl Frames {
    /// `gather` is empty, and sets whether frames are weighted.
    fn at(proc: Proc, gather: Gather) -> Result<Frames, Error> {
        // Frame numbers are the same through any proc root.
        let zeros = ZeroFrames::find(Proc::default().root()).map_err(Error::ZeroFrames)?;
        Ok(Frames { proc, empty: gather.clone(), gather, zeros, targets: Vec::new(), left_out: Vec::new() })
    }

    /// Adds the frames of a process, all or none. A process that ends or execs before everything is read, or that may
    /// not be read, is skipped. If the user named it, that is an error.
    fn add(&mut self, process: &Process, progress: &dyn Progress) -> Result<(), Error> {
        match self.read(process, progress) {
            Ok(target) if target.resident_pages + target.zero_pages + target.swapped_pages > 0 => {
                self.targets.push(target)
            }
            Ok(_) if process.named => return Err(Error::NoMemory(process.pid)),
            Ok(_) => {}
            Err(error) if process.named => return Err(error),
            Err(error) => self.left_out.push(SkippedProcess { pid: process.pid, why: error.with_causes() }),
        }
        Ok(())
    }

    /// All frames found; an error if there are none.
    fn finish(mut self, weighed_by: Option<String>) -> Result<(Footprint, FrameOwners), Error> {
        let pages = self.gather.pages();
        if pages == 0 {
            return Err(match self.left_out.is_empty() {
                true => Error::NoProcess,
                false => Error::NoFrames(self.left_out.swap_remove(0)),
            });
        }
        let whose = FrameOwners { weighed_by, pages, targets: self.targets, left_out: self.left_out };
        Ok((self.gather.finish(), whose))
    }

    fn read(&mut self, process: &Process, progress: &dyn Progress) -> Result<PlacementTarget, Error> {
        let pid = process.pid;
        match self.proc.stat(pid) {
            Err(error) if error.is_gone() => return Err(Error::NoSuch(pid)),
            Err(error) => return Err(error.into()),
            Ok(stat) if stat.is_kernel_thread() => return Err(Error::KernelThread(pid)),
            Ok(stat) if stat.has_ended() => return Err(Error::Ended(pid)),
            Ok(_) => {}
        }
        let opened = Opened::open(&self.proc, process)?;
        let (target, found) = self.read_opened(&opened, process, progress)?;
        // Another process may share its memory and outlive it.
        if !self.proc.is_alive(opened.identity)? {
            return Err(Error::CutShort(pid));
        }
        self.gather.absorb(found);
        Ok(target)
    }

    fn read_opened(
        &mut self,
        opened: &Opened,
        process: &Process,
        progress: &dyn Progress,
    ) -> Result<(PlacementTarget, Gather), Error> {
        let pid = process.pid;
        let mut reading = Reading {
            target: PlacementTarget {
                pid,
                comm: process.comm.clone(),
                resident_pages: 0,
                zero_pages: 0,
                swapped_pages: 0,
                absent_pages: 0,
                unknown_heat_pages: process.rates.as_ref().map(|_| 0),
            },
            found: self.empty.clone(),
            at: 0,
        };
        for range in &opened.ranges {
            for part in parts(&opened.pagemap, *range).map_err(|e| Error::pagemap(pid, e))? {
                if progress.is_stopped() {
                    return Err(Error::Stopped);
                }
                reading.part(&opened.pagemap, part, process, &mut self.zeros)?;
            }
        }
        // A scan of memory that is gone also finds no pages.
        if !opened.pagemap.is_there().map_err(|e| Error::pagemap(pid, e))? {
            return Err(Error::CutShort(pid));
        }
        let Reading { mut target, found, .. } = reading;
        let mapped: u64 = opened.ranges.iter().map(|range| range.len().pages()).sum();
        target.absent_pages = mapped.saturating_sub(target.resident_pages + target.zero_pages + target.swapped_pages);
        Ok((target, found))
    }
}

/// The memory of a process, and what is mapped in it.
struct Opened {
    pagemap: Pagemap,
    identity: Identity,
    ranges: Vec<AddrRange>,
}

impl Opened {
    fn open(proc: &Proc, process: &Process) -> Result<Opened, Error> {
        let pid = process.pid;
        // Opened before the start time is compared: the pagemap stays with the memory that it was opened on, even if
        // the pid is reused.
        let pagemap = Pagemap::open(proc.root(), pid).map_err(|e| Error::pagemap(pid, e))?;
        let identity = proc.identity(pid)?;
        if process.start_ticks.is_some_and(|then| then != identity.start_ticks) {
            return Err(Error::Replaced(pid));
        }
        Ok(Opened { pagemap, identity, ranges: joined(&proc.maps(pid)?) })
    }
}

/// A process that is being read.
struct Reading {
    target: PlacementTarget,
    found: Gather,
    /// The position of the last rate found.
    at: usize,
}

impl Reading {
    fn part(
        &mut self,
        pagemap: &Pagemap,
        part: AddrRange,
        process: &Process,
        zeros: &mut ZeroFrames,
    ) -> Result<(), Error> {
        let entries = pagemap.read(part).map_err(|e| Error::pagemap(process.pid, e))?;
        // All of it was mapped in the user half, so it does not reach past the end of the address space.
        if (entries.len() as u64) < part.len().pages() {
            return Err(Error::CutShort(process.pid));
        }
        for (page, entry) in entries {
            if !entry.is_present() {
                self.target.swapped_pages += u64::from(entry.is_swapped() && !entry.is_guard());
                continue;
            }
            let Some(frame) = entry.frame() else { return Err(Error::Hidden) };
            if zeros.has(entry) {
                self.target.zero_pages += 1;
                continue;
            }
            let rate = process.rates.as_ref().and_then(|rates| rates.rate_at(page, &mut self.at));
            if let (None, Some(unknown)) = (rate, &mut self.target.unknown_heat_pages) {
                *unknown += 1;
            }
            self.target.resident_pages += 1;
            self.found.add(FrameNo(frame), rate.unwrap_or_default());
        }
        Ok(())
    }
}

/// The mappings of user programs, adjacent ones joined.
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

/// The parts of a range to read, in order and of at most a chunk each. They contain all pages with a frame.
fn parts(pagemap: &Pagemap, range: AddrRange) -> io::Result<Vec<AddrRange>> {
    let populated = if range.len().pages() < LARGE { None } else { populated(pagemap, range)? };
    Ok(populated.unwrap_or_else(|| vec![range]).into_iter().flat_map(chunks).collect())
}

/// The populated parts of a range, small gaps included; `None` if the kernel cannot report them.
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
            // No progress was made: the rest is read page by page.
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
    use crate::progress::Unattended;
    use std::fs;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    fn frames(proc: Proc) -> Frames {
        Frames::at(proc, Gather::uniform()).unwrap()
    }

    fn ends_as_cut_short(opened: &mut Opened, pid: u32) {
        let mut frames = frames(Proc::default());
        let why = frames.read_opened(opened, &Process::of(pid), &Unattended).unwrap_err().to_string();
        assert!(why.contains("ended or called exec while it was read"), "{why}");
        // Where nothing is read because nothing is reported to be there, it is noticed as well.
        opened.ranges.clear();
        assert!(frames.read_opened(opened, &Process::of(pid), &Unattended).is_err());
    }

    fn waiting() -> (Child, Opened) {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line; exec sleep 60"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Until it executes the shell, it uses our memory.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let opened = Opened::open(&Proc::default(), &Process::of(child.id())).unwrap();
        assert!(!opened.ranges.is_empty());
        (child, opened)
    }

    #[test]
    fn a_process_that_is_killed_between_its_maps_and_its_pagemap_is_cut_short() {
        let (mut child, mut opened) = waiting();
        child.kill().unwrap();
        child.wait().unwrap();
        ends_as_cut_short(&mut opened, child.id());
    }

    /// It is alive all the time.
    #[test]
    fn a_process_that_execs_between_its_maps_and_its_pagemap_is_cut_short() {
        let (mut child, mut opened) = waiting();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let (proc, began) = (Proc::default(), Instant::now());
        while proc.stat(child.id()).unwrap().comm != "sleep" {
            assert!(began.elapsed() < Duration::from_secs(20), "it execs");
            std::thread::sleep(Duration::from_millis(5));
        }
        ends_as_cut_short(&mut opened, child.id());
        assert!(proc.is_alive(opened.identity).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Pages 1 to 4 and 8 to 11, with frames from 100 million on, which no machine has.
    #[test]
    fn what_was_read_of_a_process_counts_only_if_all_was_read() {
        let (dir, pid) = (tempfile::tempdir().unwrap(), std::process::id());
        let of_process = dir.path().join(pid.to_string());
        fs::create_dir(&of_process).unwrap();
        fs::write(of_process.join("stat"), fs::read("/proc/self/stat").unwrap()).unwrap();
        fs::write(of_process.join("maps"), "1000-5000 rw-p 0 00:00 0\n8000-c000 rw-p 0 00:00 0\n").unwrap();
        for (pages, complete) in [(10_u64, false), (12, true)] {
            let entries: Vec<u8> = (0..pages).flat_map(|page| (1 << 63 | (100_000_000 + page)).to_ne_bytes()).collect();
            fs::write(of_process.join("pagemap"), entries).unwrap();
            let mut frames = frames(Proc::at(dir.path()));
            frames.add(&Process::of(pid), &Unattended).unwrap();
            let gathered = (frames.gather.pages(), frames.targets.len(), frames.left_out.len());
            assert_eq!(gathered, if complete { (8, 1, 0) } else { (0, 0, 1) });
            assert!(complete || frames.add(&Process { named: true, ..Process::of(pid) }, &Unattended).is_err());
        }
    }

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
