use super::*;
use crate::perf::mapping::Mapping;
use proptest::prelude::*;

fn bytes(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(HEADER + body.len()).unwrap();
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn all(fields: Fields, bytes: &[u8]) -> Vec<Record<'_>> {
    decode(fields, bytes).collect()
}

/// A sample as the kernel writes it.
fn body(fields: Fields, sample: &Sample<'_>) -> Vec<u8> {
    let halves = |a: u32, b: u32| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
    let raw = [&u32::try_from(sample.raw.len()).unwrap().to_ne_bytes(), sample.raw].concat();
    let parts = [
        (Fields::IDENTIFIER, words(&[sample.id])),
        (Fields::IP, words(&[sample.ip])),
        (Fields::TID, halves(sample.pid, sample.tid)),
        (Fields::TIME, words(&[sample.time])),
        (Fields::ADDR, words(&[sample.addr])),
        (Fields::CPU, halves(sample.cpu, 0)),
        (Fields::PERIOD, words(&[sample.period])),
        (Fields::RAW, raw),
        (Fields::WEIGHT, words(&[sample.weight])),
        (Fields::DATA_SRC, words(&[sample.data_src])),
        (Fields::PHYS_ADDR, words(&[sample.phys_addr])),
        (Fields::DATA_PAGE_SIZE, words(&[sample.data_page_size])),
    ];
    parts.into_iter().filter(|(field, _)| fields.contains(*field)).flat_map(|(_, bytes)| bytes).collect()
}

fn encoded(fields: Fields, record: &Record<'_>) -> Vec<u8> {
    match record {
        Record::Sample(sample) => bytes(SAMPLE, &body(fields, sample)),
        Record::Lost(n) if n % 2 == 0 => bytes(LOST, &words(&[77, *n])),
        Record::Lost(n) => bytes(LOST_SAMPLES, &words(&[*n])),
        Record::Throttle => bytes(THROTTLE, &words(&[1, 2, 3])),
        Record::Unthrottle => bytes(UNTHROTTLE, &words(&[1, 2, 3])),
        Record::Other(kind) => bytes(*kind, &words(&[4])),
        Record::Malformed => unreachable!("no kernel writes that"),
    }
}

#[test]
fn records_are_what_the_kernel_wrote() {
    let sample = Sample { time: 77, ..Sample::default() };
    let records = [Record::Sample(sample), Record::Lost(6), Record::Lost(5), Record::Throttle, Record::Unthrottle];
    let written: Vec<u8> = records.iter().flat_map(|r| encoded(Fields::TIME, r)).collect();
    assert_eq!(all(Fields::TIME, &written), records);
    assert_eq!(all(Fields::TIME, &bytes(3, &[])), [Record::Other(3)]);
    let forked = bytes(FORK, &[&[1_u32, 2, 3, 4].map(u32::to_ne_bytes).concat()[..], &words(&[5])].concat());
    let started: Vec<_> = Raws::new(&forked).map(Raw::started).collect();
    assert_eq!(
        started,
        [Some(Start { pid: 1, tid: 3, parent: 4, at: 5 })],
        "the parent is the thread, not its process"
    );
    assert_eq!(Raws::new(&bytes(FORK, &[0; 8])).next().unwrap().started(), None);
}

#[test]
fn a_record_that_cannot_be_is_told_once_and_ends_the_list_if_it_has_no_end() {
    let good = bytes(SAMPLE, &words(&[1]));
    let short = bytes(SAMPLE, &[0; 4]);
    let sample = Record::Sample(Sample { time: 1, ..Sample::default() });
    let parse = |parts: &[&[u8]]| all(Fields::TIME, &parts.concat()).len();
    assert_eq!(
        all(Fields::TIME, &[&short[..], &good].concat()),
        [Record::Malformed, sample],
        "too short for its fields"
    );
    for size in [0_u16, 7, 600, u16::MAX] {
        let mut wrong = good.clone();
        wrong[6..8].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(all(Fields::TIME, &[&good[..], &wrong].concat()), [sample, Record::Malformed], "size {size}");
    }
    assert_eq!((parse(&[&bytes(LOST, &[0; 15])]), parse(&[&good, &[0; 3]])), (1, 2));
    assert_eq!(all(Fields::TIME, &bytes(LOST, &[0; 15])), [Record::Malformed]);
    let lost = |n: u64| Record::Lost(n);
    let mut tally = Tally::default();
    [lost(u64::MAX), lost(5), Record::Malformed, Record::Throttle, sample].iter().for_each(|r| tally.count(r));
    assert_eq!(tally, Tally { samples: 1, lost: u64::MAX, throttles: 1, malformed: 1 });
}

#[test]
fn what_follows_a_broken_record_in_a_ring_is_dropped_and_the_ring_goes_on() {
    let mut ring = Mapping::made_up(256, 40);
    let good = bytes(SAMPLE, &words(&[1]));
    let seen = |ring: &mut Mapping| {
        let mut seen = Vec::new();
        ring.drain(&mut Vec::new(), |raw| seen.push(matches!(raw, Raw::Record { .. })));
        seen
    };
    assert!(ring.write(&[&good[..], &[0; 16], &good].concat()));
    assert_eq!(seen(&mut ring), [true, false]);
    assert!(ring.write(&good));
    assert_eq!(seen(&mut ring), [true]);
    // A record that is cut off: the kernel does not do that.
    assert!(ring.write(&good[..12]));
    assert_eq!(seen(&mut ring), [false]);
}

/// Any set of fields.
fn any_fields() -> impl Strategy<Value = Fields> {
    any::<u64>().prop_map(Fields::from_bits)
}

/// A record, with the bytes that go into its raw field, of a length the kernel would give them.
type Made = (u8, [u64; 9], [u32; 3], Vec<u8>);

fn any_made() -> impl Strategy<Value = Made> {
    let raw = (0_usize..20, any::<u8>()).prop_map(|(words, byte)| vec![byte; words * 8 + 4]);
    (0_u8..12, any::<[u64; 9]>(), any::<[u32; 3]>(), raw)
}

/// The record that is made of it: fields that are not asked for are not there.
fn record_of(fields: Fields, (kind, w, h, raw): &Made) -> Record<'_> {
    let if_asked = |field, value: u64| if fields.contains(field) { value } else { 0 };
    let half_if_asked = |field, value: u32| if fields.contains(field) { value } else { 0 };
    match kind {
        0 => Record::Lost(w[0]),
        1 => Record::Throttle,
        2 => Record::Unthrottle,
        3 => Record::Other(20 + h[0] % 1000),
        _ => Record::Sample(Sample {
            id: if_asked(Fields::IDENTIFIER, w[0]),
            ip: if_asked(Fields::IP, w[1]),
            pid: half_if_asked(Fields::TID, h[0]),
            tid: half_if_asked(Fields::TID, h[1]),
            time: if_asked(Fields::TIME, w[2]),
            addr: if_asked(Fields::ADDR, w[3]),
            cpu: half_if_asked(Fields::CPU, h[2]),
            period: if_asked(Fields::PERIOD, w[4]),
            raw: if fields.contains(Fields::RAW) { raw } else { &[] },
            weight: if_asked(Fields::WEIGHT, w[5]),
            data_src: if_asked(Fields::DATA_SRC, w[6]),
            phys_addr: if_asked(Fields::PHYS_ADDR, w[7]),
            data_page_size: if_asked(Fields::DATA_PAGE_SIZE, w[8]),
        }),
    }
}

/// Bytes that look like records here and there: sizes are near what they should be.
fn nearly_records() -> impl Strategy<Value = Vec<u8>> {
    let one = (0_u32..16, 0_u16..80, prop::collection::vec(any::<u8>(), 0..72)).prop_map(|(kind, size, body)| {
        let mut bytes = bytes(kind, &body);
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    });
    prop::collection::vec(one, 0..20).prop_map(|records| records.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_to_an_end_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600), fields in any_fields()) {
        // Each record takes its header at least; one more tells of the end.
        prop_assert!(decode(fields, &bytes).count() <= bytes.len() / HEADER + 1);
    }

    #[test]
    fn what_looks_like_records_comes_to_an_end_without_harm(bytes in nearly_records(), fields in any_fields(), tail in any::<u64>()) {
        let records: Vec<Record<'_>> = decode(fields, &bytes).collect();
        prop_assert!(records.len() <= bytes.len() / HEADER + 1);
        // A ring that holds the same says the same.
        let mut ring = Mapping::made_up(2048, tail);
        prop_assert!(ring.write(&bytes));
        let mut at = 0;
        ring.drain(&mut Vec::new(), |raw| {
            assert_eq!(raw.record(fields), records[at]);
            at += 1;
        });
        prop_assert_eq!(at, records.len());
    }

    #[test]
    fn records_come_back_in_order_through_any_ring(
        made in prop::collection::vec(any_made(), 0..60),
        fields in any_fields(),
        power in 9_u32..18,
        tail in any::<u64>(),
        drain_every in 1_usize..20,
    ) {
        let mut ring = Mapping::made_up(1 << power, tail);
        let (mut scratch, mut at) = (Vec::new(), 0);
        let mut drain = |ring: &mut Mapping| {
            ring.drain(&mut scratch, |raw| {
                assert_eq!(raw.record(fields), record_of(fields, &made[at]), "record {at}");
                at += 1;
            });
            at
        };
        for (i, one) in made.iter().enumerate() {
            let written = encoded(fields, &record_of(fields, one));
            if !ring.write(&written) {
                prop_assert_eq!(drain(&mut ring), i);
                prop_assert!(ring.write(&written), "longer than an empty ring");
            }
            if i % drain_every == 0 {
                prop_assert_eq!(drain(&mut ring), i + 1);
            }
        }
        prop_assert_eq!(drain(&mut ring), made.len());
    }

    #[test]
    fn records_cut_off_anywhere_are_whole_up_to_there(made in prop::collection::vec(any_made(), 1..6), fields in any_fields()) {
        let records: Vec<Record<'_>> = made.iter().map(|one| record_of(fields, one)).collect();
        let mut ends = vec![0];
        let mut written = Vec::new();
        for record in &records {
            written.extend(encoded(fields, record));
            ends.push(written.len());
        }
        for cut in 0..=written.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let mut expected = records[..whole].to_vec();
            if !ends.contains(&cut) {
                expected.push(Record::Malformed);
            }
            prop_assert_eq!(all(fields, &written[..cut]), expected, "cut at {}", cut);
        }
    }
}
