//! Groups of system calls, by what they are for.
//!
//! A group is what a part of the program needs, in full: leaving out a harmless call of a family would only wait for the C library to use
//! it. What matters is absent from all of them: executing programs, listening, writing to other processes, mounts, modules,
//! namespaces, keys, changing users. Only the groups of clients open sockets and connect.

use libc::c_long;

/// The system calls that a process makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls(u8);

impl Calls {
    /// Memory, threads, time, signals to itself, and files that it may open.
    pub const FILES: Calls = Calls(0);
    /// Reads other processes, gives advice about their memory, and signals those that it has started.
    pub const PROCESSES: Calls = Calls(1);
    /// Opens perf events.
    pub const PERF: Calls = Calls(2);
    /// Uses BPF programs that are loaded already.
    pub const BPF: Calls = Calls(4);
    /// Loads BPF programs too.
    pub const BPF_LOAD: Calls = Calls(8);
    /// Answers clients of a socket that listens already.
    pub const SERVE: Calls = Calls(16);
    /// Moves pages of other processes between nodes.
    pub const MIGRATE: Calls = Calls(32);

    /// Connects to Unix sockets.
    pub const CONNECT: Calls = Calls(64);
    /// Connects to Unix sockets and over IP, with what finding addresses by name takes.
    pub const CONNECT_IP: Calls = Calls(128);

    /// Both groups.
    pub const fn and(self, other: Calls) -> Calls {
        Calls(self.0 | other.0)
    }

    /// Whether it connects beyond the machine.
    pub(crate) const fn connects_ip(self) -> bool {
        self.has(Calls::CONNECT_IP)
    }

    const fn has(self, other: Calls) -> bool {
        self.0 & other.0 != 0
    }

    /// Each call that is allowed, and for which arguments. A call occurs once.
    pub(crate) fn rules(self) -> Vec<(c_long, Rule)> {
        let any = |calls: &'static [c_long]| calls.iter().map(|call| (*call, Rule::Any));
        let mut rules: Vec<(c_long, Rule)> = any(MEMORY).chain(any(FILES)).chain(any(THREADS)).collect();
        rules.extend(any(OLD));
        rules.extend(RESTRICTED);
        if self.has(Calls::PROCESSES) {
            rules.extend(any(PROCESSES));
        }
        if self.has(Calls::MIGRATE) {
            rules.push((libc::SYS_move_pages, Rule::Any));
        }
        if self.has(Calls::PERF) {
            rules.push((libc::SYS_perf_event_open, Rule::Any));
        }
        if self.has(Calls::BPF_LOAD) {
            rules.push((libc::SYS_bpf, Rule::Any));
            // libbpf 1.4 and later hold places among the descriptors with it.
            rules.push((libc::SYS_memfd_create, Rule::Any));
        } else if self.has(Calls::BPF) {
            rules.push((libc::SYS_bpf, Rule::OneOf { argument: 0, values: BPF_USE }));
        }
        if self.has(Calls::SERVE) {
            rules.extend(any(ACCEPT));
        }
        if self.has(Calls::SERVE.and(Calls::CONNECT).and(Calls::CONNECT_IP)) {
            rules.extend(any(SOCKETS));
        }
        rules.extend(self.connecting());
        rules
    }

    /// What opens sockets.
    fn connecting(self) -> Vec<(c_long, Rule)> {
        let values = match self {
            _ if self.has(Calls::CONNECT_IP) => IP_AND_UNIX,
            _ if self.has(Calls::CONNECT) => UNIX,
            _ => return Vec::new(),
        };
        let mut rules = vec![(libc::SYS_socket, Rule::OneOf { argument: 0, values }), (libc::SYS_connect, Rule::Any)];
        if self.has(Calls::CONNECT_IP) {
            // The C library asks a name server for both kinds of addresses at once.
            rules.push((libc::SYS_sendmmsg, Rule::Any));
        }
        rules
    }
}

/// For which arguments a call is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Any,
    /// The process itself.
    Itself {
        argument: u8,
    },
    OneOf {
        argument: u8,
        values: &'static [u32],
    },
    /// None of the bits is set.
    Without {
        argument: u8,
        bits: u32,
    },
    /// All of the bits are set.
    With {
        argument: u8,
        bits: u32,
    },
}

const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_membarrier,
];

const FILES: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // A pair connects to nobody else: wakeups of event loops.
    libc::SYS_socketpair,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_utimensat,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
];

const THREADS: &[c_long] = &[
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    // Refused with ENOSYS by a filter of its own, so that the C library uses clone.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_prlimit64,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // The sandbox itself, in steps.
    libc::SYS_seccomp,
];

/// Calls that newer architectures lack; the C library makes some of them.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_getdents,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_time,
    libc::SYS_pause,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// Memory that can be executed, and processes, are not made. Of `prctl` only names, the parent's death, and the sandbox's own.
const RESTRICTED: [(c_long, Rule); 6] = [
    // Others may have the same user.
    (libc::SYS_tgkill, Rule::Itself { argument: 0 }),
    (libc::SYS_mmap, Rule::Without { argument: 2, bits: libc::PROT_EXEC as u32 }),
    (libc::SYS_mprotect, Rule::Without { argument: 2, bits: libc::PROT_EXEC as u32 }),
    (libc::SYS_clone, Rule::With { argument: 0, bits: libc::CLONE_THREAD as u32 }),
    (libc::SYS_prctl, Rule::OneOf { argument: 0, values: PRCTL }),
    // Standard error and output may be sockets.
    (libc::SYS_sendto, Rule::OneOf { argument: 5, values: &[0] }),
];

const PRCTL: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_SET_SECCOMP as u32,
    libc::PR_GET_SECCOMP as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_CAP_AMBIENT as u32,
    libc::PR_SET_VMA as u32,
];

const PROCESSES: &[c_long] = &[
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
];

/// Commands of `bpf` that load nothing: elements of maps, information, and links of loaded programs.
const BPF_USE: &[u32] = &[
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    10, // BPF_PROG_TEST_RUN
    15, // BPF_OBJ_GET_INFO_BY_FD
    28, // BPF_LINK_CREATE
    33, // BPF_ITER_CREATE
];

/// Families of sockets. Without netlink the C library does not know which addresses this host has, and tries both kinds.
const UNIX: &[u32] = &[libc::AF_UNIX as u32];
const IP_AND_UNIX: &[u32] = &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32];

const ACCEPT: &[c_long] = &[libc::SYS_accept, libc::SYS_accept4];

const SOCKETS: &[c_long] = &[
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALL: Calls = Calls(u8::MAX);

    #[test]
    fn each_call_has_one_rule() {
        for bits in 0..=u8::MAX {
            let rules = Calls(bits).rules();
            let calls: BTreeSet<c_long> = rules.iter().map(|(call, _)| *call).collect();
            assert_eq!(calls.len(), rules.len(), "groups {bits:08b}");
        }
    }

    #[test]
    fn only_clients_connect() {
        let opens =
            |calls: Calls| calls.rules().iter().any(|(call, _)| [libc::SYS_socket, libc::SYS_connect].contains(call));
        assert!(!opens(Calls(63)) && opens(Calls::CONNECT) && opens(Calls::CONNECT_IP));
        let families =
            |calls: Calls| calls.rules().into_iter().find(|(call, _)| *call == libc::SYS_socket).map(|(_, rule)| rule);
        assert_eq!(families(Calls::CONNECT), Some(Rule::OneOf { argument: 0, values: &[1] }));
        assert_eq!(families(Calls::CONNECT_IP), Some(Rule::OneOf { argument: 0, values: &[1, 2, 10] }));
    }

    #[test]
    fn no_group_executes_listens_or_changes_what_a_process_is() {
        let calls: BTreeSet<c_long> = ALL.rules().into_iter().map(|(call, _)| call).collect();
        let never = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_move_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_keyctl,
            libc::SYS_setuid,
            libc::SYS_setgid,
            libc::SYS_setresuid,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_open_by_handle_at,
            libc::SYS_mknodat,
            libc::SYS_reboot,
        ];
        assert!(never.iter().all(|call| !calls.contains(call)));
    }
}
