//! Names the place of a wait, and sums waits by place.

use crate::observed::{SeenWaiters, Wait, Waits};
use serde::Serialize;
use std::collections::BTreeMap;

/// Functions in which every stack begins. They do not identify the waiter.
const ENTRIES: [&str; 19] = [
    "entry_SYSCALL_64_after_hwframe",
    "entry_SYSCALL_64",
    "do_syscall_64",
    "x64_sys_call",
    "asm_exc_page_fault",
    "ret_from_fork_asm",
    "ret_from_fork",
    "kthread",
    "worker_thread",
    "process_one_work",
    "process_scheduled_works",
    "el0t_64_sync",
    "el0t_64_sync_handler",
    "el0_svc",
    "do_el0_svc",
    "el0_svc_common",
    "invoke_syscall",
    "secondary_startup_64_no_verify",
    "common_startup_64",
];
/// The innermost functions belong to the lock and to the tracing of it. There are at most this many.
const OF_THE_LOCK: usize = 12;
/// Functions named from the one that takes the lock outwards, in addition to the outermost one.
const NAMED: usize = 3;

/// A number of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Number of waits.
    pub count: u64,
    /// Their total time.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Sum {
    fn add(&mut self, wait: &Wait) {
        self.count += wait.count;
        self.total_ns += wait.total_ns;
        self.max_ns = self.max_ns.max(wait.max_ns);
    }
}

/// Waits for zone locks, as far as they were observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contention {
    /// Why nothing was observed; `None` if waits were observed.
    pub unseen: Option<String>,
    /// Which waiters can be observed; `None` if nothing was observed.
    #[serde(rename = "told")]
    pub seen: Option<SeenWaiters>,
    /// All waits.
    pub all: Sum,
    /// Waits of `vmstat_update` itself.
    pub housekeeping: Sum,
    /// Waits of other code while `vmstat_update` ran on another CPU. That CPU need not have held the lock.
    pub beside: Sum,
    /// Waits of other code while `vmstat_update` ran on no other CPU.
    pub foreground: Sum,
    /// By caller, longest total first.
    pub by_caller: Vec<CallerRow>,
    /// By zone, longest total first.
    pub by_zone: Vec<ZoneRow>,
    /// Waits for spinning locks of any kind: 0 where the kernel has no events for them.
    pub spins: u64,
    /// Waits that are in no figure.
    pub lost: u64,
}

/// Waits from one place, for the lock of any zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallerRow {
    /// The function that takes the lock, then its callers, and last the outermost function that identifies the waiter;
    /// `..` where functions are omitted.
    pub functions: Vec<String>,
    /// Within `vmstat_update`.
    pub housekeeping: bool,
    /// Waits.
    pub waits: Sum,
    /// Number of these waits while `vmstat_update` ran on another CPU.
    pub beside: u64,
}

/// Waits for the lock of one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneRow {
    /// Its NUMA node.
    pub node: u32,
    /// Its name.
    pub zone: String,
    /// Waits.
    pub waits: Sum,
}

/// The functions that identify the waiter, the one that takes the lock first.
fn place(functions: &[String]) -> Vec<String> {
    let of_lock = functions.iter().take(OF_THE_LOCK).rposition(|f| f.contains("spin_lock"));
    let rest = &functions[of_lock.map_or(0, |last| last + 1)..];
    let end = rest.iter().rposition(|f| !ENTRIES.contains(&f.as_str())).map_or(0, |last| last + 1);
    let rest = &rest[..end];
    match rest {
        [] => vec!["unknown".to_owned()],
        few if few.len() <= NAMED + 1 => few.to_vec(),
        [first @ .., last] => {
            let mut named = first[..NAMED].to_vec();
            if first.len() > NAMED {
                named.push("..".to_owned());
            }
            named.push(last.clone());
            named
        }
    }
}

/// Sums waits by place, by zone, and by whether `vmstat_update` was involved.
pub(crate) fn contention(waits: &Result<Waits, String>) -> Contention {
    let mut contention = Contention {
        unseen: None,
        seen: None,
        all: Sum::default(),
        housekeeping: Sum::default(),
        beside: Sum::default(),
        foreground: Sum::default(),
        by_caller: Vec::new(),
        by_zone: Vec::new(),
        spins: 0,
        lost: 0,
    };
    let waits = match waits {
        Ok(waits) => waits,
        Err(why) => return Contention { unseen: Some(why.clone()), ..contention },
    };
    (contention.seen, contention.spins, contention.lost) = (Some(waits.seen), waits.spins, waits.lost);
    let mut callers: BTreeMap<(Vec<String>, bool), (Sum, u64)> = BTreeMap::new();
    let mut zones: BTreeMap<(u32, &str), Sum> = BTreeMap::new();
    for wait in &waits.by_place {
        contention.all.add(wait);
        sum_of(&mut contention, wait).add(wait);
        zones.entry((wait.node, &wait.zone)).or_default().add(wait);
        let (sum, beside) = callers.entry((place(&wait.functions), wait.updating)).or_default();
        sum.add(wait);
        *beside += if wait.beside { wait.count } else { 0 };
    }
    let row = |((functions, housekeeping), (waits, beside))| CallerRow { functions, housekeeping, waits, beside };
    contention.by_caller = callers.into_iter().map(row).collect();
    contention.by_caller.sort_by_key(|r| std::cmp::Reverse(r.waits.total_ns));
    contention.by_zone =
        zones.into_iter().map(|((node, zone), waits)| ZoneRow { node, zone: zone.to_owned(), waits }).collect();
    contention.by_zone.sort_by_key(|r| std::cmp::Reverse(r.waits.total_ns));
    contention
}

fn sum_of<'a>(contention: &'a mut Contention, wait: &Wait) -> &'a mut Sum {
    match (wait.updating, wait.beside) {
        (true, _) => &mut contention.housekeeping,
        (false, true) => &mut contention.beside,
        (false, false) => &mut contention.foreground,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(stack: &str) -> String {
        place(&stack.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).join(" <- ")
    }

    #[test]
    fn a_place_is_named_by_what_says_something() {
        let lock = "bpf_prog_1_on_wait bpf_trampoline_7 __traceiter_contention_begin native_queued_spin_lock_slowpath \
                    _raw_spin_lock_irqsave";
        let work = "process_one_work worker_thread kthread ret_from_fork ret_from_fork_asm";
        assert_eq!(
            named(&format!("{lock} free_pcppages_bulk decay_pcp_high refresh_cpu_vm_stats vmstat_update {work}")),
            "free_pcppages_bulk <- decay_pcp_high <- refresh_cpu_vm_stats <- vmstat_update"
        );
        let fault = "rmqueue_bulk get_page_from_freelist __alloc_pages vma_alloc_folio do_anonymous_page handle_mm_fault \
                     exc_page_fault asm_exc_page_fault";
        assert_eq!(
            named(&format!("{lock} {fault}")),
            "rmqueue_bulk <- get_page_from_freelist <- __alloc_pages <- .. <- exc_page_fault"
        );
        assert_eq!(named("a b"), "a <- b");
        assert_eq!(named(lock), "unknown");
        assert_eq!(named(""), "unknown");
    }

    #[test]
    fn waits_are_added_up_by_place_zone_and_kind() {
        let wait = |zone: &str, function: &str, updating, beside, count| Wait {
            node: 0,
            zone: zone.to_owned(),
            functions: vec![function.to_owned()],
            updating,
            beside,
            count,
            total_ns: count * 100,
            max_ns: 100 + count,
        };
        let by_place = vec![
            wait("Normal", "free_pcppages_bulk", true, true, 3),
            wait("DMA32", "free_pcppages_bulk", true, false, 2),
            wait("Normal", "free_pcppages_bulk", false, true, 4),
            wait("Normal", "rmqueue_bulk", false, false, 10),
        ];
        let counted = contention(&Ok(Waits { by_place, spins: 50, lost: 0, seen: SeenWaiters::Every }));
        let counts = |sum: Sum| (sum.count, sum.total_ns, sum.max_ns);
        assert_eq!(counts(counted.all), (19, 1900, 110));
        assert_eq!(counts(counted.housekeeping), (5, 500, 103));
        assert_eq!((counted.beside.count, counted.foreground.count), (4, 10));
        assert_eq!(counted.by_zone.iter().map(|z| z.waits.count).collect::<Vec<_>>(), [17, 2]);
        let rows: Vec<_> = counted.by_caller.iter().map(|r| (r.housekeeping, r.waits.count, r.beside)).collect();
        assert_eq!(rows, [(false, 10, 0), (true, 5, 3), (false, 4, 4)]);
        assert_eq!(contention(&Err("none".to_owned())).unseen.as_deref(), Some("none"));
    }
}
