//! Expected misses by conflict of frames that are told one by one, in any order.
//!
//! Frames are kept in a list until there are half as many as colours, then summed into an array with a place for each colour: so memory
//! follows the frames where they are few, and is bounded by the cache where they are many.

use super::geometry::DirectMapped;
use isotherm_units::FrameNo;

/// What lies in one colour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How many frames.
    pub frames: u64,
    /// What they weigh together.
    pub weight: f64,
    /// The sum of the squares of their weights.
    pub squares: f64,
}

impl Load {
    /// Adds a frame. A weight that is no number, infinite or below 0 counts as 0: a frame that is never accessed.
    #[inline]
    pub fn add(&mut self, weight: f64) {
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        self.frames += 1;
        self.weight += weight;
        self.squares += weight * weight;
    }

    /// How much of its weight hits under independent references: `sum p^2 / P`, at most `P`.
    #[inline]
    pub fn hits(&self) -> f64 {
        if self.weight > 0.0 { (self.squares / self.weight).min(self.weight) } else { 0.0 }
    }
}

/// The histogram of frames in a colour ends here: its last number is of colours with that many or more.
pub const HISTOGRAM_MOST: usize = 16;

/// What all colours add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Misses {
    /// Frames told.
    pub frames: u64,
    /// What they weigh.
    pub weight: f64,
    /// How much of that hits.
    pub hits: f64,
    /// Colours that hold a frame.
    pub colours_used: u64,
    /// Colours by how many frames they hold, from 1 (at index 1; index 0 is never used) to [`HISTOGRAM_MOST`] or more.
    pub histogram: [u64; HISTOGRAM_MOST + 1],
    /// The most frames that any colour holds.
    pub most_frames: u64,
    /// Frames in colours that hold more than one.
    pub crowded_frames: u64,
    /// What those weigh.
    pub crowded_weight: f64,
}

impl Misses {
    /// Adds a colour; one without frames changes nothing.
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
        let slot = usize::try_from(load.frames).map_or(HISTOGRAM_MOST, |n| n.min(HISTOGRAM_MOST));
        self.histogram[slot] += 1;
        if load.frames > 1 {
            self.crowded_frames += load.frames;
            self.crowded_weight += load.weight;
        }
    }

    /// The share of accesses that miss by conflict, 0 to 1; `None` if nothing is accessed.
    pub fn rate(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (1.0 - self.hits / self.weight).clamp(0.0, 1.0))
    }

    /// The share of accesses that go to colours of more than one frame, 0 to 1; `None` if nothing is accessed.
    pub fn crowded_share(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (self.crowded_weight / self.weight).clamp(0.0, 1.0))
    }
}

/// Frames told one by one.
///
/// Takes 16 bytes a frame, or 24 a colour once there are more than half as many frames as colours. Telling 16 million frames takes
/// well below a second, and [`Conflict::visit`] another if they had to be sorted.
#[derive(Clone, Debug)]
pub struct Conflict {
    cache: DirectMapped,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    /// Colour and weight of each frame.
    List(Vec<(u64, f64)>),
    /// What lies in each colour.
    Colours(Vec<Load>),
}

impl Conflict {
    /// Nothing told yet.
    pub const fn new(cache: DirectMapped) -> Conflict {
        Conflict { cache, kept: Kept::List(Vec::new()) }
    }

    /// Tells of a frame that is accessed with `weight`, in any unit that all frames share: accesses a second, or 1 for all. Each frame is
    /// to be told once: one told twice is taken as two that get in each other's way.
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

    /// From a list of frames to an array of colours, which is not larger by much.
    fn sum_up(&mut self) {
        let (Kept::List(list), Ok(colours)) = (&self.kept, usize::try_from(self.cache.frames())) else { return };
        let mut loads = vec![Load::default(); colours];
        for (colour, weight) in list {
            at(&mut loads, *colour).add(*weight);
        }
        self.kept = Kept::Colours(loads);
    }

    /// Hands each colour that holds a frame to `each`, in order, and returns what they add up to.
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

    /// What all colours add up to.
    pub fn finish(self) -> Misses {
        self.visit(|_, _| {})
    }
}

fn at(loads: &mut [Load], colour: u64) -> &mut Load {
    &mut loads[usize::try_from(colour).expect("an array of that many was made")]
}
