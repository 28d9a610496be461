//! Expected conflict misses of frames that are added one by one, in any order.
//!
//! Frames are kept in a list until there are half as many as colours. They are then summed into an array with one entry
//! per colour. So memory grows with the number of frames while there are few, and the size of the cache bounds it when
//! there are many.

use super::geometry::DirectMapped;
use isotherm_units::FrameNo;

/// The frames of one colour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Number of frames.
    pub frames: u64,
    /// The sum of their weights.
    pub weight: f64,
    /// The sum of the squares of their weights.
    pub squares: f64,
}

impl Load {
    /// Adds a frame. A weight that is NaN, infinite or below 0 counts as 0: a frame that is never accessed.
    #[inline]
    pub fn add(&mut self, weight: f64) {
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        self.frames += 1;
        self.weight += weight;
        self.squares += weight * weight;
    }

    /// The part of its weight that hits under independent references: `sum p^2 / P`, at most `P`.
    #[inline]
    pub fn hits(&self) -> f64 {
        if self.weight > 0.0 { (self.squares / self.weight).min(self.weight) } else { 0.0 }
    }
}

/// The last index of the histogram of frames per colour. It counts the colours with that many frames or more.
pub const MAX_HISTOGRAM: usize = 16;

/// The sum over all colours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Misses {
    /// Frames added.
    pub frames: u64,
    /// Their total weight.
    pub weight: f64,
    /// The part of that weight that hits.
    pub hits: f64,
    /// Colours that hold a frame.
    pub colours_used: u64,
    /// Number of colours that hold n frames, at index n, from 1 to [`MAX_HISTOGRAM`] or more. Index 0 is never used.
    pub histogram: [u64; MAX_HISTOGRAM + 1],
    /// The maximum number of frames in one colour.
    pub most_frames: u64,
    /// Frames in colours that hold more than one.
    pub crowded_frames: u64,
    /// Their total weight.
    pub crowded_weight: f64,
}

impl Misses {
    /// Adds a colour. One without frames changes nothing.
    #[inline]
    pub fn add(&mut self, load: &Load) {
        if load.frames == 0 {
            return;
        }
        self.frames += load.frames;
        self.weight += load.weight;
        self.hits += load.hits();
        self.colours_used += 1;
        self.most_frames = self.most_frames.max(load.frames);
        let slot = usize::try_from(load.frames).map_or(MAX_HISTOGRAM, |n| n.min(MAX_HISTOGRAM));
        self.histogram[slot] += 1;
        if load.frames > 1 {
            self.crowded_frames += load.frames;
            self.crowded_weight += load.weight;
        }
    }

    /// The share of accesses that are conflict misses, 0 to 1; `None` if nothing is accessed.
    pub fn rate(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (1.0 - self.hits / self.weight).clamp(0.0, 1.0))
    }

    /// The share of accesses that go to colours with more than one frame, 0 to 1; `None` if nothing is accessed.
    pub fn crowded_share(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (self.crowded_weight / self.weight).clamp(0.0, 1.0))
    }
}

/// Frames that are added one by one.
///
/// Takes 16 bytes a frame, or 24 bytes a colour once there are more than half as many frames as colours. Adding 16
/// million frames takes well below a second. [`Conflict::visit`] takes about as long again if it has to sort them.
#[derive(Clone, Debug)]
pub struct Conflict {
    cache: DirectMapped,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    /// Colour and weight of each frame.
    List(Vec<(u64, f64)>),
    /// The frames of each colour.
    Colours(Vec<Load>),
}

impl Conflict {
    /// Starts without frames.
    pub const fn new(cache: DirectMapped) -> Conflict {
        Conflict { cache, kept: Kept::List(Vec::new()) }
    }

    /// Adds a frame that is accessed with `weight`, in any unit that all frames share: accesses per second, or 1 for
    /// all. Add each frame once: a frame added twice counts as two frames that compete.
    pub fn add(&mut self, frame: FrameNo, weight: f64) {
        let colour = self.cache.colour_of(frame);
        match &mut self.kept {
            Kept::Colours(loads) => at(loads, colour).add(weight),
            Kept::List(list) => {
                list.push((colour, weight));
                if list.len() as u64 > self.cache.frames() / 2 {
                    self.sum_up();
                }
            }
        }
    }

    /// Turns the list of frames into an array of colours, which is not much larger.
    fn sum_up(&mut self) {
        let (Kept::List(list), Ok(colours)) = (&self.kept, usize::try_from(self.cache.frames())) else { return };
        let mut loads = vec![Load::default(); colours];
        for (colour, weight) in list {
            at(&mut loads, *colour).add(*weight);
        }
        self.kept = Kept::Colours(loads);
    }

    /// Calls `each` for every colour that holds a frame, in order, and returns the sum.
    pub fn visit(self, mut each: impl FnMut(u64, &Load)) -> Misses {
        let mut misses = Misses::default();
        let mut tell = |colour: u64, load: &Load| {
            if load.frames > 0 {
                misses.add(load);
                each(colour, load);
            }
        };
        match self.kept {
            Kept::Colours(loads) => (0..).zip(&loads).for_each(|(colour, load)| tell(colour, load)),
            Kept::List(mut list) => {
                list.sort_unstable_by_key(|(colour, _)| *colour);
                for frames in list.chunk_by(|a, b| a.0 == b.0) {
                    let mut load = Load::default();
                    frames.iter().for_each(|(_, weight)| load.add(*weight));
                    tell(frames[0].0, &load);
                }
            }
        }
        misses
    }

    /// The sum over all colours.
    pub fn finish(self) -> Misses {
        self.visit(|_, _| {})
    }
}

fn at(loads: &mut [Load], colour: u64) -> &mut Load {
    &mut loads[usize::try_from(colour).expect("an array of that many was made")]
}
