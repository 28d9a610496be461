//! Hints from the kernel's multi-generation LRU, for `collapse` and `run`.
//!
//! Ages once per window, and reports which pages were accessed since the previous aging. [`isotherm_schemes`] decides what to do with them.
//! It does not read generations itself, because that takes BPF.

use anyhow::{Context, Result};
use isotherm_schemes::collapse::benefit::{Generation, of_generation};
use isotherm_schemes::plan::HintSource;
use isotherm_schemes::{PmdFacts, TargetWindow};
use isotherm_sources::mglru::{Mglru, interval_of};
use isotherm_units::PmdNo;

/// A page accessed between the last two agings is at most this many generations behind the youngest.
const TOUCHED: u8 = 1;

/// MGLRU as a source of hints. Holds nothing if hints come from the heat map alone.
#[derive(Debug)]
pub struct Generations(Option<Mglru>);

impl Generations {
    /// Opens MGLRU if hints come from it. Fails if it cannot be opened.
    pub fn open(hints: HintSource) -> Result<Generations> {
        let mglru =
            if hints == HintSource::Heat { None } else { Some(Mglru::open().context("hints from MGLRU (--hints)")?) };
        Ok(Generations(mglru))
    }

    /// Ends the window of these processes. Later accesses count for the next window.
    pub fn age(&self, pids: &[u32]) -> Result<()> {
        if let Some(mglru) = &self.0 {
            mglru.age(pids).context("hints from MGLRU")?;
        }
        Ok(())
    }

    /// Adds the facts from MGLRU about the huge ranges of a window.
    pub fn add_to(&mut self, window: &mut TargetWindow<'_>) -> Result<()> {
        window.generations = self.facts(window.id.pid, window.facts.iter().map(|f| f.pmd))?;
        Ok(())
    }

    /// The facts about the huge ranges of a process, in address order. None before the second aging, or if the process has ended.
    fn facts(&mut self, pid: u32, pmds: impl Iterator<Item = PmdNo>) -> Result<Vec<PmdFacts>> {
        let mut facts = Vec::new();
        let Some(mglru) = &mut self.0 else { return Ok(facts) };
        let pmds: Vec<PmdNo> = pmds.collect();
        let interval = match mglru.memcg(pid) {
            Ok(memcg) => interval_of(&memcg),
            Err(error) if error.is_gone() => None,
            Err(error) => return Err(error).context("hints from MGLRU"),
        };
        let Some(interval) = interval else { return Ok(facts) };
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let read = mglru.generations(pid, &pmds, &mut |ages| {
            let pages = Generation {
                pmd: ages.pmd,
                present: ages.present,
                huge: ages.huge,
                known: ages.known(),
                young: ages.within(TOUCHED),
            };
            facts.push(of_generation(pages, interval_ns));
        });
        match read {
            Err(error) if !error.is_gone() => Err(error).context("hints from MGLRU"),
            _ => Ok(facts),
        }
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, pid: u32) {
        if let Some(mglru) = &mut self.0 {
            mglru.forget(pid);
        }
    }
}
