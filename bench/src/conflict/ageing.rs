//! A machine that has been up for a while: the other owners of its memory, and what they do before our program starts.
//!
//! Four owners allocate and free, as on a machine that runs services, reads files and has run our program before:
//!
//! | owner | maximum | allocates | frees |
//! |---|---|---|---|
//! | kernel | 1/16 of memory | unmovable, orders 0 to 3, mostly 0 | any block, at random |
//! | file cache | 3/8 | single movable frames | any frame, at random, as reclaim does |
//! | heap | 1/4 | huge pages, 1 in 8 a single frame | everything at its goal, then begins again |
//! | jobs | 3/16 | movable, mostly single frames | everything when they are done |
//!
//! First, all owners fill up, in random order, which leaves an eighth of memory free. Then come the counted operations.
//! Each allocates or frees a block of a random owner that moves towards a goal. The goal of the kernel and the file
//! cache is a random level between half and all of their maximum. The heap and the jobs grow to a random level and then
//! free everything, in the order of allocation or in random order with equal probability. Last, the heap and the jobs
//! end, and the file cache shrinks to a sixteenth. About an eighth of memory is then in use, in places that depend on
//! the history. The heap that is allocated next, and measured, gets the frames that its predecessor and the others have
//! freed. That is the pattern of the kernel's proposal: a program that runs again on a machine whose allocator has
//! aged.
//!
//! If no huge page is free, the owner takes a single frame, as in the kernel.

use anyhow::{Context, Result};
use isotherm_frames::{FrameNo, MigrateType, Order, Zone};
use isotherm_rng::Rng;

/// What an owner frees, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// One block at a time, at random.
    AtRandom,
    /// All blocks, when it has reached its goal.
    AllAtOnce,
}

/// An owner of memory.
#[derive(Debug)]
struct Owner {
    blocks: Vec<(FrameNo, Order)>,
    frames: u64,
    /// Maximum number of frames.
    most: u64,
    /// Current goal, in frames.
    goal: u64,
    manner: Manner,
    migrate: MigrateType,
    /// The order of its next block is drawn from these eight.
    orders: [u32; 8],
}

impl Owner {
    fn new(most: u64, manner: Manner, migrate: MigrateType, orders: [u32; 8]) -> Owner {
        Owner { blocks: Vec::new(), frames: 0, most, goal: most, manner, migrate, orders }
    }

    /// Allocates a block, or a single frame if there is none of the wanted order. Returns false if there is no frame
    /// either.
    fn take(&mut self, zone: &Zone<'_>, rng: &mut Rng) -> bool {
        let wanted = usize::try_from(rng.below(8)).map_or(0, |at| self.orders[at]);
        let wanted = Order::new(wanted).unwrap_or_default();
        for order in [wanted, Order::FRAME] {
            if let Ok(frame) = zone.alloc(order, self.migrate) {
                self.blocks.push((frame, order));
                self.frames += u64::from(order.frames());
                return true;
            }
        }
        false
    }

    /// Frees a block: the last of its list, or a random one.
    fn give(&mut self, zone: &Zone<'_>, rng: &mut Rng) -> Result<()> {
        if self.manner == Manner::AtRandom && !self.blocks.is_empty() {
            let (at, last) = (below(rng, self.blocks.len()), self.blocks.len() - 1);
            self.blocks.swap(at, last);
        }
        let Some((frame, order)) = self.blocks.pop() else { return Ok(()) };
        self.frames -= u64::from(order.frames());
        zone.free(frame, order).context("giving back what an owner has")
    }

    /// One operation towards the goal.
    fn step(&mut self, zone: &Zone<'_>, rng: &mut Rng) -> Result<()> {
        let growing = self.frames < self.goal;
        if growing && self.take(zone, rng) {
            if self.frames >= self.goal {
                self.arrive(rng);
            }
            return Ok(());
        }
        self.give(zone, rng)?;
        if self.frames <= self.goal && !growing {
            self.arrive(rng);
        }
        Ok(())
    }

    /// The goal is reached: sets the next one.
    fn arrive(&mut self, rng: &mut Rng) {
        self.goal = match self.manner {
            Manner::AtRandom => self.most / 2 + rng.below(self.most / 2 + 1),
            Manner::AllAtOnce if self.frames > 0 => {
                self.order_of_giving(rng);
                0
            }
            Manner::AllAtOnce => self.most / 8 + rng.below(self.most - self.most / 8 + 1),
        };
    }

    /// Blocks are freed from the end of the list: in the order of allocation, or in random order.
    fn order_of_giving(&mut self, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.blocks.reverse();
        } else {
            for last in (1..self.blocks.len()).rev() {
                let other = below(rng, last + 1);
                self.blocks.swap(last, other);
            }
        }
    }

    fn shrink(&mut self, zone: &Zone<'_>, rng: &mut Rng, to: u64) -> Result<()> {
        if self.manner == Manner::AllAtOnce {
            self.order_of_giving(rng);
        }
        while self.frames > to {
            self.give(zone, rng)?;
        }
        Ok(())
    }
}

/// A random number below `n`; 0 if `n` is 0.
fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap_or_default()
}

/// The memory that stays in use after ageing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// That of the kernel, and a sixteenth of memory in the file cache: about an eighth.
    Eighth,
    /// Nothing: all owners have ended. Only the order of the free lists depends on the history.
    Nothing,
}

/// The owners of memory other than the measured one.
#[derive(Debug)]
pub struct Others {
    owners: [Owner; 4],
    rng: Rng,
}

impl Others {
    /// Owners on a machine of `memory` frames; none of them has any memory yet.
    pub fn new(memory: u64, seed: u64) -> Others {
        use Manner::{AllAtOnce, AtRandom};
        use MigrateType::{Movable, Unmovable};
        let owners = [
            Owner::new(memory / 16, AtRandom, Unmovable, [0, 0, 0, 0, 0, 1, 2, 3]),
            Owner::new(memory / 8 * 3, AtRandom, Movable, [0; 8]),
            Owner::new(memory / 4, AllAtOnce, Movable, [9, 9, 9, 9, 9, 9, 9, 0]),
            Owner::new(memory / 16 * 3, AllAtOnce, Movable, [0, 0, 0, 0, 0, 0, 1, 9]),
        ];
        Others { owners, rng: Rng::new(seed) }
    }

    /// Ages `zone` with this many operations. The zone has as many frames as were passed to [`Others::new`].
    pub fn age(&mut self, zone: &Zone<'_>, operations: u64, left: Left) -> Result<()> {
        self.fill(zone);
        for _ in 0..operations {
            let owner = below(&mut self.rng, self.owners.len());
            self.owners[owner].step(zone, &mut self.rng)?;
        }
        let keep = match left {
            Left::Eighth => [self.owners[0].most, self.owners[1].most / 6, 0, 0],
            Left::Nothing => [0; 4],
        };
        self.owners.iter_mut().zip(keep).try_for_each(|(owner, to)| owner.shrink(zone, &mut self.rng, to))
    }

    /// Lets all owners grow to their maximum.
    fn fill(&mut self, zone: &Zone<'_>) {
        let mut growing: Vec<usize> = (0..self.owners.len()).collect();
        while !growing.is_empty() {
            let at = below(&mut self.rng, growing.len());
            let owner = &mut self.owners[growing[at]];
            if !owner.take(zone, &mut self.rng) || owner.frames >= owner.most {
                owner.arrive(&mut self.rng);
                growing.swap_remove(at);
            }
        }
    }

    /// The frames that they own.
    pub fn frames(&self) -> impl Iterator<Item = FrameNo> + '_ {
        self.owners
            .iter()
            .flat_map(|owner| &owner.blocks)
            .flat_map(|(frame, order)| (0..u64::from(order.frames())).map(|at| frame.plus(at)))
    }
}
