//! System calls of a recorder that fail: with each error that the kernel documents for a shortage or an interruption, now and then, for as
//! long as it records. They are injected by `strace`, so that libraries meet them as well.

use crate::Fault;
use crate::support::{Stage, installed, sees_pages, workload};
use crate::watch::Tally;
use std::time::Duration;

type Played = Result<Tally, &'static str>;

const HOLDS: &str = "it works, or ends with an error that names the call";

/// What fails, with which errors. Each third to tenth call of its kind, from the fifth on.
macro_rules! failing {
    ($($name:ident: $call:literal $error:literal $every:literal;)*) => {
        /// One fault for each call and error.
        pub fn faults() -> Vec<Fault> {
            $(fn $name() -> Played { injected($call, $error, $every) })*
            vec![$(Fault { name: concat!($call, " fails now and then with ", $error), holds: HOLDS, play: $name }),*]
        }
    };
}

failing! {
    advice_again: "process_madvise" "EAGAIN" 3;
    advice_interrupted: "process_madvise" "EINTR" 3;
    advice_memory: "process_madvise" "ENOMEM" 3;
    pread_again: "pread64" "EAGAIN" 7;
    pread_interrupted: "pread64" "EINTR" 7;
    pread_memory: "pread64" "ENOMEM" 7;
    read_interrupted: "read" "EINTR" 7;
    read_memory: "read" "ENOMEM" 7;
    open_memory: "openat" "ENOMEM" 7;
    open_interrupted: "openat" "EINTR" 7;
    open_many: "openat" "EMFILE" 7;
    pidfd_memory: "pidfd_open" "ENOMEM" 2;
    bpf_again: "bpf" "EAGAIN" 9;
    bpf_memory: "bpf" "ENOMEM" 9;
    map_memory: "mmap" "ENOMEM" 10;
    poll_interrupted: "poll" "EINTR" 3;
    sleep_interrupted: "clock_nanosleep" "EINTR" 3;
    write_interrupted: "write" "EINTR" 3;
    write_space: "write" "ENOSPC" 9;
    sync_io: "fsync" "EIO" 2;
    rename_space: "rename" "ENOSPC" 2;
    random_interrupted: "getrandom" "EINTR" 2;
}

fn injected(call: &str, error: &str, every: u32) -> Played {
    if !installed("strace") || !sees_pages() {
        return Err("strace, and the page-table source");
    }
    let (stage, child) = (Stage::new(), workload(16));
    // From the beginning of its own work on: what the loader of programs meets is not ours.
    let first = if ["openat", "read", "pread64", "mmap"].contains(&call) { 120 } else { 1 };
    let script = format!(
        "exec timeout -k 5 40 strace -f -qq -o trace -e trace={call} -e inject={call}:error={error}:when={first}+{every} \
         $isotherm record -o r -d 3s -w 500ms -p {}",
        child.pid()
    );
    let ran = stage.start_shell(&script).end_within(Duration::from_secs(60));
    assert!(!ran.err.contains("panicked"), "{ran}");
    match ran.code {
        Some(0) => {
            stage.isotherm("report processes r").ended(0);
        }
        Some(1) => assert!(ran.err.contains("isotherm: ") && ran.err.len() > 20, "no reason is given: {ran}"),
        other => panic!("ended with {other:?}\n{ran}"),
    }
    Ok(Tally::once())
}
