//! A machine that has been up for a while: the other owners of its memory, and what they do before ours comes.
//!
//! Four owners take and give back, as on a machine that runs services, reads files and has had our program running
//! before:
//!
//! | owner | holds at the most | of | gives back |
//! |---|---|---|---|
//! | kernel | 1/16 of memory | unmovable, orders 0 to 3, mostly 0 | any block, at random |
//! | file cache | 3/8 | single movable frames | any frame, at random, as reclaim does |
//! | heap | 1/4 | huge pages, 1 in 8 a single frame | everything once it is full, then begins anew |
//! | jobs | 3/16 | movable, mostly single frames | everything once they are done |
//!
//! First all of them fill up, in turns chosen at random, which leaves an eighth of memory free. Then come the
//! operations that are counted, each a block taken or given back by an owner drawn at random, who is on the way to a
//! goal: a level of its own choice between half and all of the most it may hold (kernel, file cache), or everything and
//! then nothing (heap, jobs; those that give everything back do so in the order of allocation or in random order, by a
//! coin). Last, the heap and the jobs end, and the file cache shrinks to a sixteenth: what is in use then is about an
//! eighth of memory, in places that history left. The heap that is allocated next, and measured, finds what its
//! predecessor and the others have given back: that is the pattern of the kernel's proposal, a program run again on a
//! machine whose allocator has aged.
//!
//! A huge page that is not to be had becomes a single frame, as the kernel does it.

use anyhow::{Context, Result};
use isotherm_frames::{FrameNo, MigrateType, Order, Zone};
use isotherm_rng::Rng;

/// What an owner gives back, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// A block at a time, any of them.
    AtRandom,
    /// All of it, once it had as much as it wanted.
    AllAtOnce,
}

/// Someone who has memory.
#[derive(Debug)]
struct Owner {
    blocks: Vec<(FrameNo, Order)>,
    frames: u64,
    /// How much it may have.
    most: u64,
    /// How much it wants just now.
    goal: u64,
    manner: Manner,
    migrate: MigrateType,
    /// The order of its next block, drawn from eight.
    orders: [u32; 8],
}

impl Owner {
    fn new(most: u64, manner: Manner, migrate: MigrateType, orders: [u32; 8]) -> Owner {
        Owner { blocks: Vec::new(), frames: 0, most, goal: most, manner, migrate, orders }
    }

    /// Takes a block, or a single frame if there is none of the order wanted; false if there is not even that.
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

    /// Gives a block back: the last of its list, or any.
    fn give(&mut self, zone: &Zone<'_>, rng: &mut Rng) -> Result<()> {
        if self.manner == Manner::AtRandom && !self.blocks.is_empty() {
            let (at, last) = (below(rng, self.blocks.len()), self.blocks.len() - 1);
            self.blocks.swap(at, last);
        }
        let Some((frame, order)) = self.blocks.pop() else { return Ok(()) };
        self.frames -= u64::from(order.frames());
        zone.free(frame, order).context("giving back what an owner has")
    }

    /// One operation on the way to the goal.
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

    /// Has as much as it wanted: wants something else.
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

    /// Blocks are given from the end of the list: in the order of allocation, or in random order.
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

/// Of `n` things any; 0 of none.
fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap_or_default()
}

/// What is left in use after ageing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// What the kernel has then, and a sixteenth of memory of file cache: about an eighth.
    Eighth,
    /// Nothing: everyone has ended. What remains of history is the order of the free lists.
    Nothing,
}

/// Those who have memory beside the owner that is measured.
#[derive(Debug)]
pub struct Others {
    owners: [Owner; 4],
    rng: Rng,
}

impl Others {
    /// On a machine of `memory` frames; nobody has anything yet.
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

    /// Ages `zone`, whose frames are as many as [`Others::new`] was told, by so many operations.
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

    /// Until all have as much as they may.
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

    /// The frames that they have.
    pub fn frames(&self) -> impl Iterator<Item = FrameNo> + '_ {
        self.owners
            .iter()
            .flat_map(|owner| &owner.blocks)
            .flat_map(|(frame, order)| (0..u64::from(order.frames())).map(|at| frame.plus(at)))
    }
}
