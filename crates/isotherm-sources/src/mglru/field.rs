//! Where a page's flags word holds its generation: three bits, at a place that depends on how the kernel was built.
//!
//! The bits hold the number of the generation, modulo four, plus one; 0 means a page in none (on no LRU list, or
//! locked). Above them are node, zone and more, as many bits as the configuration needs. No file or type information
//! shows how many. So the place is found by trial: pages of our own are brought into three known states. A place is
//! accepted only if it matches all three, compared with the numbers in debugfs. If none matches or several do,
//! generations are not available.
//!
//! ```text
//!  63                                                              0
//!  | node | zone | last cpu | ... | generation | references | flags |
//!                                  shift+2..shift
//! ```

use isotherm_sys::lru_gen::MAX_GENERATIONS;

const BITS: u64 = 0b111;
/// There are at least this many flags below it.
const LOWEST: u32 = 20;
const HIGHEST: u32 = 61;
/// One page in this many may differ: it may wait in a CPU's batch, or the kernel may have moved it meanwhile.
const STRAYS: usize = 6;
/// Fewer pages prove nothing.
const MIN_PAGES: usize = 64;

/// The place of the generation in the flags of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    shift: u32,
}

/// Flags of one page of ours in three states.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Just populated: in the youngest generation, or (from 6.14 on) the one before.
    pub fresh: u64,
    /// After `MADV_COLD`: in an older one, or in the same if there are only two.
    pub cold: u64,
    /// Locked: in no generation.
    pub locked: u64,
    /// Oldest and youngest generation on its node.
    pub span: (u64, u64),
}

impl Field {
    /// Its lowest bit.
    pub fn shift(self) -> u32 {
        self.shift
    }

    /// How many generations the page is behind the youngest; `None` if it is in none.
    pub fn age(self, flags: u64, (oldest, youngest): (u64, u64)) -> Option<u64> {
        let slot = (flags >> self.shift & BITS).checked_sub(1).filter(|slot| *slot < MAX_GENERATIONS)?;
        let age = (youngest % MAX_GENERATIONS + MAX_GENERATIONS - slot) % MAX_GENERATIONS;
        (age <= youngest.checked_sub(oldest)?).then_some(age)
    }

    /// Finds the place. The error text reports what was found instead.
    pub fn find(pages: &[Seen]) -> Result<Field, String> {
        if pages.len() < MIN_PAGES {
            return Err(format!("only {} pages of our own could be read", pages.len()));
        }
        let fits = |field: &Field| pages.iter().filter(|page| !field.explains(page)).count() * STRAYS <= pages.len();
        let found: Vec<Field> = (LOWEST..=HIGHEST).map(|shift| Field { shift }).filter(fits).collect();
        match found.as_slice() {
            [field] => Ok(*field),
            [] => Err("no three bits of the page flags match the known generations of our own pages".into()),
            several => {
                let bits: Vec<u32> = several.iter().map(|f| f.shift).collect();
                Err(format!("the generation may begin at any of the bits {bits:?}; try again in a while"))
            }
        }
    }

    fn explains(self, page: &Seen) -> bool {
        let (fresh, cold) = (self.age(page.fresh, page.span), self.age(page.cold, page.span));
        let only_two = page.span.1.saturating_sub(page.span.0) == 1;
        let in_order = |(fresh, cold)| fresh <= 1 && (cold > fresh || only_two && cold == fresh);
        page.locked >> self.shift & BITS == 0 && fresh.zip(cold).is_some_and(in_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page at `shift`: ages when fresh and cold, with other bits around that do not change.
    fn seen(shift: u32, around: u64, ages: (u64, u64), span: (u64, u64)) -> Seen {
        let mask = !(BITS << shift);
        let at = |age: u64| around & mask | ((span.1 - age) % MAX_GENERATIONS + 1) << shift;
        Seen { fresh: at(ages.0), cold: at(ages.1), locked: around & mask, span }
    }

    #[test]
    fn ages_count_back_from_the_youngest_and_wrap() {
        let field = Field { shift: 30 };
        let age = |slot: u64, span| field.age(slot << 30, span);
        assert_eq!([4, 3, 2, 1].map(|slot| age(slot, (4, 7))), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!([1, 4, 3].map(|slot| age(slot, (7, 8))), [Some(0), Some(1), None]);
        assert_eq!([0, 5, 7].map(|slot| age(slot, (4, 7))), [None; 3]);
    }

    #[test]
    fn the_place_is_found_whatever_the_generation_and_the_bits_around() {
        for shift in [20, 27, 33, 44, 61] {
            for youngest in 3..11 {
                for (ages, oldest) in [((0, 2), 3), ((0, 1), 2), ((1, 2), 3), ((1, 3), 3), ((0, 0), 1), ((1, 1), 1)] {
                    for around in [0, u64::MAX, 0x5555_5555_5555_5555, 0x0013_fffd_0000_002c] {
                        let page = seen(shift, around, ages, (youngest - oldest, youngest));
                        match Field::find(&[page; 100]) {
                            Ok(field) => assert_eq!(field.shift(), shift, "{page:x?}"),
                            Err(why) => assert!(why.contains("any of the bits"), "{why} {page:x?}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_few_strays_do_no_harm_and_many_refuse() {
        let good = seen(27, 0, (0, 2), (3, 6));
        let stray = Seen { fresh: 0, ..good };
        let mut pages = vec![good; 90];
        pages.extend([stray; 10]);
        assert_eq!(Field::find(&pages).map(Field::shift), Ok(27));
        pages.extend([stray; 30]);
        assert!(Field::find(&pages).is_err() && Field::find(&[good; 8]).is_err());
    }
}
