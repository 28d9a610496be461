//! The syntax in which the kernel describes events: `event=0xcd,umask=0x1,ldlat=3`, and the bits that each term sets.
//!
//! Pure text and numbers; [`super::pmu`] reads the text.

use isotherm_sys::perf::Event;

/// One of the four numbers of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Config,
    Config1,
    Config2,
    Config3,
}

impl Word {
    pub(super) fn parse(name: &str) -> Option<Word> {
        Some(match name {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            "config3" => Word::Config3,
            _ => return None,
        })
    }

    fn of(self, event: &mut Event) -> &mut u64 {
        match self {
            Word::Config => &mut event.config,
            Word::Config1 => &mut event.config1,
            Word::Config2 => &mut event.config2,
            Word::Config3 => &mut event.config3,
        }
    }
}

/// Which bits of which number a term sets: `config:0-7,32-35`.
///
/// The lowest bit of a value goes to the lowest of them, in whatever order they are listed, as in perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    word: Word,
    mask: u64,
}

impl Field {
    /// A whole number.
    pub(super) const fn whole(word: Word) -> Field {
        Field { word, mask: u64::MAX }
    }

    pub(super) fn parse(text: &str) -> Option<Field> {
        let (word, bits) = text.split_once(':')?;
        let mask = bits.split(',').try_fold(0, |mask, range| Some(mask | range_mask(range)?))?;
        Some(Field { word: Word::parse(word.trim())?, mask })
    }

    /// Its number of bits.
    pub(super) fn bits(self) -> u32 {
        self.mask.count_ones()
    }

    /// Sets it; false if the value does not fit.
    pub(super) fn put(self, event: &mut Event, value: u64) -> bool {
        if self.bits() < 64 && value >> self.bits() != 0 {
            return false;
        }
        let word = self.word.of(event);
        let scattered = self.places().enumerate().filter(|(i, _)| value >> i & 1 == 1);
        *word = scattered.fold(*word & !self.mask, |word, (_, place)| word | 1 << place);
        true
    }

    /// Reads it back.
    pub(super) fn get(self, mut event: Event) -> u64 {
        let word = *self.word.of(&mut event);
        self.places().enumerate().fold(0, |value, (i, place)| value | (word >> place & 1) << i)
    }

    /// The numbers of its bits, lowest first.
    fn places(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |place| self.mask >> place & 1 == 1)
    }
}

/// The bits of `0-7`, or of `21`.
fn range_mask(range: &str) -> Option<u64> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last < 64).then(|| u64::MAX >> (63 - (last - first)) << first)
}

/// A term: its name, and its value if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) name: String,
    pub(super) value: Option<u64>,
}

impl Term {
    pub(super) fn new(name: &str, value: u64) -> Term {
        Term { name: name.to_owned(), value: Some(value) }
    }
}

/// A list of terms; the error is the term that cannot be parsed.
pub(super) fn parse(text: &str) -> Result<Vec<Term>, &str> {
    text.split(',').map(str::trim).map(|term| parse_term(term).ok_or(term)).collect()
}

fn parse_term(term: &str) -> Option<Term> {
    let (name, value) = match term.split_once('=') {
        Some((name, value)) => (name.trim(), Some(number(value.trim())?)),
        None => (term, None),
    };
    is_file_name(name).then(|| Term { name: name.to_owned(), value })
}

/// A number, decimal or hexadecimal.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Whether it may be the name of a file in sysfs: names come from the command line and become parts of paths.
pub(super) fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(text: &str) -> Field {
        Field::parse(text).expect(text)
    }

    #[test]
    fn values_go_to_their_bits() {
        let mut event = Event::new(4, 0);
        assert!(field("config:0-7,32-35").put(&mut event, 0xabc));
        assert!(field("config:21").put(&mut event, 1));
        assert!(field("config1:0-15").put(&mut event, 30));
        assert!(field("config2:60-63").put(&mut event, 0xf));
        assert!(field("config3:0-63").put(&mut event, u64::MAX));
        assert_eq!(event.config, 0xa << 32 | 1 << 21 | 0xbc);
        assert_eq!((event.config1, event.config2, event.config3), (30, 0xf << 60, u64::MAX));
        // What was there before goes.
        assert!(field("config:0-7,32-35").put(&mut event, 0x1));
        assert_eq!(event.config, 1 << 21 | 1);
    }

    #[test]
    fn the_order_of_ranges_does_not_matter() {
        assert_eq!(field("config:32-35,0-7"), field("config:0-7,32-35"));
        assert_eq!(field("config:0-3,2-7"), field("config:0-7"));
    }

    #[test]
    fn a_value_without_room_changes_nothing() {
        let mut event = Event::new(4, 0x55);
        assert!(!field("config:0-3,8").put(&mut event, 32));
        assert_eq!(event, Event::new(4, 0x55));
        assert!(field("config:0-3,8").put(&mut event, 31));
        assert_eq!(event.config, 0x15f);
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for text in ["", "config", "config:", "config:64", "config:7-0", "config:-1", "config:1,", "config4:0", "x:0-7"]
        {
            assert_eq!(Field::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn terms_have_values_or_not() {
        let terms = parse("event=0xcd, umask=1,edge").expect("three terms");
        let edge = Term { name: "edge".to_owned(), value: None };
        assert_eq!(terms, [Term::new("event", 0xcd), Term::new("umask", 1), edge]);
        for (text, wrong) in [("", ""), ("event=1,", ""), ("event=", "event="), ("core=?", "core=?"), ("a=+1", "a=+1")]
        {
            assert_eq!(parse(text), Err(wrong), "{text:?}");
        }
        for name in ["../type", ".", "..", "a/b", ".hidden", "a\0b", ""] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_scattered_value_reads_back_and_leaves_the_rest(mask in 1_u64.., value: u64, before: u64) {
            let field = Field { word: Word::Config2, mask };
            let value = if field.bits() == 64 { value } else { value & ((1 << field.bits()) - 1) };
            let mut event = Event { config2: before, ..Event::new(4, before) };
            prop_assert!(field.put(&mut event, value));
            prop_assert_eq!(field.get(event), value);
            prop_assert_eq!(event.config2 & !mask, before & !mask);
            prop_assert_eq!(event.config, before);
        }

        #[test]
        fn ranges_in_text_are_the_bits_between(mut ends in prop::collection::vec((0_u32..64, 0_u32..64), 1..4)) {
            ends.iter_mut().for_each(|(a, b)| (*a, *b) = ((*a).min(*b), (*a).max(*b)));
            let text: Vec<String> = ends.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            let field = Field::parse(&format!("config1:{}", text.join(","))).expect("ranges");
            for bit in 0..64 {
                let within = ends.iter().any(|(a, b)| (*a..=*b).contains(&bit));
                prop_assert_eq!(field.mask >> bit & 1 == 1, within, "bit {}", bit);
            }
        }

        #[test]
        fn any_text_is_taken_apart_or_refused(text in ".{0,40}") {
            let _ = (Field::parse(&text), parse(&text), number(&text));
        }
    }
}
