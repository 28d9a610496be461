//! What is written is read, and what is not a stream is refused: without a panic, a hang, or memory beyond what was sent.

mod samples;

use isotherm_stream::{Error, IdleRow, Message, Reader, encode, header};
use proptest::prelude::*;
use samples::snapshot;

fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
    [header().as_slice()].into_iter().chain(frames.iter().map(Vec::as_slice)).collect::<Vec<_>>().concat()
}

/// All messages up to the end, or the error.
fn read(bytes: &[u8]) -> Result<Vec<Message>, Error> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.next().transpose()).collect()
}

fn lost(count: u64) -> Vec<u8> {
    [&[2, 8, 0, 0, 0][..], &count.to_le_bytes()].concat()
}

#[test]
fn snapshots_come_back_as_they_were() {
    let (one, two) = (snapshot(0, 10), snapshot(1, 0));
    let bytes = stream(&[encode(&one).unwrap(), lost(7), encode(&two).unwrap()]);
    let expected = [Message::Snapshot(Box::new(one)), Message::Lost(7), Message::Snapshot(Box::new(two))];
    assert_eq!(read(&bytes).unwrap(), expected);
    assert_eq!(read(&[]).unwrap(), []);
    assert_eq!(read(&header()).unwrap(), []);
}

#[test]
fn frames_and_tables_that_are_not_known_are_skipped() {
    let one = snapshot(3, 2);
    let mut frame = encode(&one).unwrap();
    // A table of number 77 with three bytes, at the end.
    frame.extend([77, 0, 3, 0, 0, 0, 1, 2, 3]);
    let length = u32::try_from(frame.len() - 5).unwrap();
    frame[1..5].copy_from_slice(&length.to_le_bytes());
    let unknown = vec![200, 2, 0, 0, 0, 9, 9];
    let mut bytes = stream(&[unknown, frame]);
    // A newer minor version.
    bytes[10] = 9;
    assert_eq!(read(&bytes).unwrap(), [Message::Snapshot(Box::new(one))]);
}

/// A reader of minor version 0 does not know the tables of idle pages found accessed and of plans, which are the last: without them, the
/// rest is read.
#[test]
fn an_older_snapshot_has_no_idle_pages_that_were_accessed_and_no_plan() {
    let (mut older, newer) = (snapshot(3, 2), snapshot(3, 2));
    older.idle.clear();
    older.plan.clear();
    let (older_frame, newer_frame) = (encode(&older).unwrap(), encode(&newer).unwrap());
    assert_eq!(older_frame[5..], newer_frame[5..older_frame.len()], "what is new is at the end");
    assert_eq!(read(&stream(&[older_frame])).unwrap(), [Message::Snapshot(Box::new(older))]);
}

#[test]
fn another_version_and_other_bytes_are_refused() {
    let mut newer = header().to_vec();
    newer[8] = 2;
    assert!(matches!(read(&newer), Err(Error::Version { found: 2, known: 1 })));
    assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(Error::Damaged { .. })));
    let announced = stream(&[vec![1, 0xff, 0xff, 0xff, 0xff]]);
    assert!(read(&announced).unwrap_err().to_string().contains("more than"));
    assert!(read(&stream(&[vec![1, 0, 0, 0, 0]])).unwrap_err().to_string().contains("without its host"));
}

#[test]
fn a_stream_that_ends_anywhere_in_a_frame_is_truncated() {
    let bytes = stream(&[encode(&snapshot(0, 2)).unwrap()]);
    for end in (1..bytes.len()).filter(|end| *end != header().len()) {
        assert!(matches!(read(&bytes[..end]), Err(Error::Truncated { .. })), "{end} of {}", bytes.len());
    }
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let mut one = snapshot(0, 0);
    one.processes[0].comm = "ä".repeat(5000) + "x";
    one.events[0].text = format!("x{}", "ä".repeat(5000));
    let Message::Snapshot(back) = read(&stream(&[encode(&one).unwrap()])).unwrap().remove(0) else { panic!() };
    assert_eq!(back.processes[0].comm, "ä".repeat(4096));
    assert_eq!(back.events[0].text, format!("x{}", "ä".repeat(4095)));
}

#[test]
fn values_that_would_overflow_later_are_refused() {
    let mut huge = snapshot(0, 1);
    huge.regions[0].region.resident_pages = u64::MAX;
    assert!(read(&stream(&[encode(&huge).unwrap()])).unwrap_err().to_string().contains("out of range"));
    let mut twice = snapshot(0, 1);
    twice.processes.push(twice.processes[0].clone());
    assert!(read(&stream(&[encode(&twice).unwrap()])).unwrap_err().to_string().contains("twice"));
    let mut sum = snapshot(0, 1);
    sum.processes[0].heat = vec![(9, 1 << 44), (10, 1 << 44), (11, 1)].into();
    assert!(read(&stream(&[encode(&sum).unwrap()])).unwrap_err().to_string().contains("pages in a snapshot"));
    let mut accessed = snapshot(0, 1);
    accessed.idle = vec![IdleRow { pages: 1 << 45, ..accessed.idle[0] }, IdleRow { pages: 1, ..accessed.idle[0] }];
    assert!(read(&stream(&[encode(&accessed).unwrap()])).unwrap_err().to_string().contains("idle pages accessed"));
    let mut not_finite = snapshot(0, 1);
    not_finite.host.slowdown_pct = f64::NAN;
    assert!(read(&stream(&[encode(&not_finite).unwrap()])).is_ok(), "sent as 0");
}

#[test]
fn a_snapshot_with_too_many_rows_is_not_sent() {
    let mut many = snapshot(0, 0);
    many.events = vec![many.events[0].clone(); isotherm_stream::MAX_ROWS + 1];
    let error = encode(&many).unwrap_err().to_string();
    assert!(error.contains("rows of events") && error.contains("--max-regions"), "{error}");
}

proptest! {
    /// proptest prints the input that failed, which stands for a seed.
    #[test]
    fn mutated_bytes_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        // Hides the messages of panics that are caught.
        std::panic::set_hook(Box::new(|_| {}));
        let mut bytes = stream(&[encode(&snapshot(0, 4)).unwrap(), lost(1), encode(&snapshot(1, 2)).unwrap()]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        // A hang would be seen as one, a panic ends the test.
        if let Ok(messages) = read(&bytes) {
            prop_assert!(messages.len() <= 3);
        }
    }

    #[test]
    fn random_bytes_after_a_header_are_read_or_refused(frame in prop::collection::vec(any::<u8>(), 0..400), kind in 0_u8..3) {
        std::panic::set_hook(Box::new(|_| {}));
        let mut framed = vec![kind];
        framed.extend(u32::try_from(frame.len()).unwrap().to_le_bytes());
        framed.extend(&frame);
        let _ = read(&stream(&[framed]));
    }
}
