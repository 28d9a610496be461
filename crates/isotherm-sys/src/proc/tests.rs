//! The readers on a made-up `/proc`, with what a hostile or unlucky process can put there.

use super::*;
use isotherm_units::{Addr, AddrRange, Bytes};
use std::fmt::Write;
use tempfile::TempDir;

/// A `/proc` in a temporary directory.
struct FakeProc {
    dir: TempDir,
}

impl FakeProc {
    fn new() -> FakeProc {
        FakeProc { dir: TempDir::new().expect("temporary directory") }
    }

    fn file(self, name: &str, text: impl AsRef<[u8]>) -> FakeProc {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create directory");
        fs::write(path, text).expect("write file");
        self
    }

    fn proc(&self) -> Proc {
        Proc::at(self.dir.path())
    }
}

fn stat_line(pid: u32, comm: &str, state: char, ppid: u32, flags: u64) -> String {
    format!(
        "{pid} ({comm}) {state} {ppid} 1 1 0 -1 {flags} 11 12 13 14 15 16 17 18 20 0 3 0 4711 1000 2 18446744073709551615 4194304 4198400 140730 0\n"
    )
}

const MAPS: &str = "\
55d0c0000000-55d0c0021000 r--p 00000000 fe:00 247026                     /usr/bin/my server
55d0c0021000-55d0c0042000 r-xp 00021000 fe:00 247026                     /usr/bin/my server
55d0c1000000-55d0c1200000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
7f0000400000-7f0000800000 rw-p 00000000 00:00 0                          [anon:jit cache]
7f0001000000-7f0001200000 rw-s 00003000 00:1a 99                         /dev/shm/ring (deleted)
7f0002000000-7f0002001000 r--p 00000000 103:00000001 5                   /tmp/two\\012lines
7ffd00000000-7ffd00002000 r--p 00000000 00:00 0                          [vvar]
7ffd00002000-7ffd00003000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

#[test]
fn maps_are_read_with_every_kind_of_name() {
    let fake = FakeProc::new().file("7/maps", MAPS);
    let maps = fake.proc().maps(7).unwrap();
    let names: Vec<&str> = maps.iter().map(|m| &*m.name).collect();
    assert_eq!(
        names,
        [
            "/usr/bin/my server",
            "/usr/bin/my server",
            "[heap]",
            "",
            "[anon:jit cache]",
            "/dev/shm/ring (deleted)",
            "/tmp/two\\012lines",
            "[vvar]",
            "[vdso]",
            "[vsyscall]",
        ]
    );
    assert_eq!(maps[1].range, AddrRange::new(Addr(0x55d0_c002_1000), Addr(0x55d0_c004_2000)));
    assert_eq!((maps[1].offset, maps[1].dev, maps[1].inode), (0x21000, (0xfe, 0), 247_026));
    assert_eq!(maps[6].dev, (0x103, 1));
    let perms: Vec<String> = maps.iter().take(6).map(|m| m.perms.to_string()).collect();
    assert_eq!(perms, ["r--p", "r-xp", "rw-p", "rw-p", "rw-p", "rw-s"]);
    assert!(maps[5].perms.contains(Perms::SHARED) && maps[5].is_deleted() && !maps[5].is_anonymous());
    assert!(std::sync::Arc::ptr_eq(&maps[0].name, &maps[1].name), "neighbours share their name");
}

#[test]
fn only_the_process_own_mappings_are_monitorable() {
    let maps = Maps::from_text(MAPS.as_bytes()).unwrap();
    let monitorable: Vec<bool> = maps.entries().iter().map(MapEntry::is_monitorable).collect();
    assert_eq!(monitorable, [true, true, true, true, true, true, true, false, false, false]);
}

#[test]
fn an_address_is_found_in_its_mapping_only() {
    let maps = Maps::from_text(MAPS.as_bytes()).unwrap();
    assert_eq!(&*maps.find(Addr(0x55d0_c100_0000)).unwrap().name, "[heap]");
    assert_eq!(&*maps.find(Addr(0x55d0_c11f_ffff)).unwrap().name, "[heap]");
    assert_eq!(maps.find(Addr(0x55d0_c120_0000)), None);
    assert_eq!(maps.find(Addr(0)), None);
    assert_eq!(Maps::default().find(Addr(0)), None);
}

#[test]
fn names_keep_spaces_at_the_end_and_bytes_that_are_not_utf8() {
    let maps = Maps::from_text(b"1000-2000 r--p 00000000 fe:00 5    /a \xff b \n").unwrap();
    assert_eq!(&*maps.entries()[0].name, "/a \u{fffd} b ");
}

#[test]
fn broken_map_lines_say_what_and_where() {
    for (line, item) in [
        ("", ""),
        ("zzzz-2000 r--p 0 00:00 0", "start"),
        ("1000 2000 r--p 0 00:00 0", "start"),
        ("1000-2000", "end"),
        ("3000-2000 r--p 0 00:00 0", "end"),
        ("10000000000000000-2000 r--p 0 00:00 0", "start"),
        ("1000-2000 r-- 0 00:00 0", "perms"),
        ("1000-2000 r--q 0 00:00 0", "perms"),
        ("1000-2000 r--p", "offset"),
        ("1000-2000 r--p 0 0000 0", "device"),
        ("1000-2000 r--p 0 100000000:00 0", "device"),
        ("1000-2000 r--p 0 00:00 ", "inode"),
        ("1000-2000 r--p 0 00:00 99999999999999999999", "inode"),
    ] {
        let text = format!("1000-2000 r--p 00000000 00:00 0 \n{line}\n");
        match Maps::from_text(text.as_bytes()) {
            Err(Error::Parse { line: 2, item: got, .. }) => assert_eq!(got, item, "{line}"),
            Ok(maps) if item.is_empty() => assert_eq!(maps.entries().len(), 1),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_maps_reader_forgets_the_last_process() {
    let fake =
        FakeProc::new().file("7/maps", MAPS).file("8/maps", "1000-2000 r--p 00000000 00:00 0 \n").file("9/maps", "?");
    let mut maps = Maps::default();
    assert_eq!(maps.read(&fake.proc(), 7).unwrap().len(), 10);
    assert_eq!(maps.read(&fake.proc(), 8).unwrap().len(), 1);
    assert!(maps.read(&fake.proc(), 9).is_err());
    assert!(maps.entries().is_empty());
}

#[test]
fn kernel_threads_and_zombies_have_no_memory_and_are_no_error() {
    let fake = FakeProc::new()
        // Older kernels give empty files ...
        .file("2/stat", stat_line(2, "kthreadd", 'S', 0, 0x20_8040))
        .file("2/maps", "")
        .file("2/smaps", "")
        .file("2/smaps_rollup", "")
        // ... newer ones refuse to open them.
        .file("3/stat", stat_line(3, "done", 'Z', 1, 0).replace(" 3 0 4711", " 1 0 4711"))
        // The main thread has ended and others run on.
        .file("4/stat", stat_line(4, "headless", 'Z', 1, 0));
    let proc = fake.proc();
    for pid in [2, 3] {
        assert_eq!(proc.maps(pid).unwrap(), []);
        assert_eq!(proc.smaps(pid).unwrap().count(), 0);
        assert_eq!(proc.smaps_rollup(pid).unwrap(), Usage::default());
        assert_eq!(proc.exe(pid).unwrap(), None);
    }
    assert!(proc.stat(2).unwrap().is_kernel_thread());
    assert!(!proc.is_alive(Identity { pid: 3, start_ticks: 4711 }).unwrap());
    assert!(proc.is_alive(Identity { pid: 4, start_ticks: 4711 }).unwrap());
    assert_eq!(proc.maps(4).unwrap(), []);
}

#[test]
fn what_executes_again_and_again_is_read_again_and_what_has_no_memory_once() {
    let fake = FakeProc::new()
        .file("5/stat", stat_line(5, "restless", 'R', 1, 0))
        .file("6/stat", stat_line(6, "done", 'Z', 1, 0));
    let proc = fake.proc();
    // How often it is read when it shows something at the `nth` time.
    let reads = |pid, nth| {
        let mut reads = 0;
        let found = proc.find_memory(pid, || {
            reads += 1;
            Ok::<bool, Error>(reads == nth)
        });
        (found.unwrap(), reads)
    };
    assert_eq!(reads(5, 1), (true, 1));
    assert_eq!(reads(5, 7), (true, 7));
    assert_eq!(reads(5, 0), (false, 16), "not for ever");
    assert_eq!(reads(6, 0), (false, 1));
    assert_eq!(reads(7, 0), (false, 1), "gone");
}

#[test]
fn a_process_that_ended_is_gone() {
    let proc = FakeProc::new().proc();
    assert!(proc.maps(5).unwrap_err().is_gone());
    assert!(proc.smaps(5).unwrap_err().is_gone());
    assert!(proc.smaps_rollup(5).unwrap_err().is_gone());
    assert!(proc.stat(5).unwrap_err().is_gone());
    assert!(proc.exe(5).unwrap_err().is_gone());
    assert!(proc.membership(5).unwrap_err().is_gone());
    assert!(!proc.is_alive(Identity { pid: 5, start_ticks: 1 }).unwrap());
}

#[test]
fn a_refusal_names_the_privilege_and_the_ptrace_scope() {
    let fake = FakeProc::new().file("sys/kernel/yama/ptrace_scope", "2\n");
    let refused = std::io::Error::from_raw_os_error(libc::EACCES);
    let error = fake.proc().error(Path::new("/proc/5/smaps"), refused);
    assert!(error.is_denied());
    let text = error.to_string();
    assert!(text.contains("or with CAP_SYS_PTRACE") && text.contains("ptrace_scope is 2"), "{text}");
    // Bit 19.
    let fake = fake.file("self/status", "Name:\tx\nCapEff:\t0000000000080000\n");
    let text =
        fake.proc().error(Path::new("/proc/5/smaps"), std::io::Error::from_raw_os_error(libc::EACCES)).to_string();
    assert!(text.contains("although we have CAP_SYS_PTRACE") && text.contains("security module"), "{text}");
}

#[test]
fn stat_takes_command_names_that_look_like_the_rest_of_the_line() {
    for comm in ["sh", "a b", ") (", "x) S 1 (y", "((", "))", "", "new\nline", "1 (2) Z 3"] {
        let stat = stat::Stat::parse(stat_line(812, comm, 'R', 17, 0x40_0100).as_bytes()).unwrap();
        assert_eq!(stat.comm, comm);
        assert_eq!(
            stat,
            Stat {
                pid: 812,
                comm: comm.to_owned(),
                state: 'R',
                ppid: 17,
                flags: 0x40_0100,
                minflt: 11,
                majflt: 13,
                utime: 15,
                stime: 16,
                num_threads: 3,
                start_ticks: 4711,
                start_code: 4_194_304,
                start_stack: 140_730,
            }
        );
    }
}

#[test]
fn a_truncated_stat_is_an_error_at_any_length() {
    let whole = stat_line(812, "a ) b", 'R', 17, 0);
    let needed = whole.find(" 0\n").expect("what follows the start of the stack");
    for len in 0..whole.find("140730").expect("start of the stack") {
        assert!(stat::Stat::parse(&whole.as_bytes()[..len]).is_err(), "{:?}", &whole[..len]);
    }
    assert!(stat::Stat::parse(&whole.as_bytes()[..needed]).is_ok());
    assert!(stat::Stat::parse(b")x(").is_err());
}

#[test]
fn a_reused_pid_is_another_process() {
    let fake = FakeProc::new().file("7/stat", stat_line(7, "sh", 'S', 1, 0));
    let proc = fake.proc();
    let id = proc.identity(7).unwrap();
    assert!(proc.is_alive(id).unwrap());
    assert!(!proc.is_alive(Identity { start_ticks: id.start_ticks - 1, ..id }).unwrap());
}

#[test]
fn status_tells_user_memory_and_huge_page_permission() {
    let text = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nVmRSS:\t    1644 kB\nRssAnon:\t 1000 kB\nRssFile:\t 600 kB\nRssShmem:\t 44 kB\nHugetlbPages:\t    8192 kB\nTHP_enabled:\t0\nCapEff:\t000001ffffffffff\n";
    let fake = FakeProc::new()
        .file("7/status", text)
        .file("2/status", "Name:\tk\nUid:\t0\t0\t0\t0\n")
        .file("9/status", "Name:\tx\n");
    let status = fake.proc().status(7).unwrap();
    assert_eq!(status.uids, [1000, 1001, 1002, 1003]);
    assert_eq!((status.rss, status.thp_enabled), (Some(Bytes(1644 * 1024)), Some(false)));
    assert_eq!((status.rss_of_files, status.hugetlb), (Some(Bytes(644 * 1024)), Some(Bytes(8 << 20))));
    assert_eq!(status.cap_eff, Some(0x1ff_ffff_ffff));
    let kernel = fake.proc().status(2).unwrap();
    assert_eq!((kernel.rss, kernel.rss_of_files, kernel.thp_enabled), (None, None, None));
    assert!(matches!(fake.proc().status(9), Err(Error::Parse { item: "Uid", .. })));
}

#[test]
fn mounts_are_those_of_another_thread_once_the_main_thread_has_ended() {
    let mounts = "1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / /tmp rw - tmpfs tmpfs rw\n";
    let fake = FakeProc::new().file("7/task/7/stat", "").file("7/task/9/mountinfo", mounts);
    let found = fake.proc().mounts(7).unwrap();
    assert!(found.is_in_memory("/tmp/db") && !found.is_in_memory("/var/db"));
    assert!(fake.proc().mounts(8).is_err());
}

#[test]
fn pids_and_descendants_are_found_even_in_a_circle() {
    let mut fake = FakeProc::new().file("self/stat", "").file("uptime", "");
    for (pid, ppid) in [(1, 0), (10, 1), (11, 10), (12, 11), (20, 1), (30, 31), (31, 30)] {
        fake = fake.file(&format!("{pid}/stat"), stat_line(pid, "x", 'S', ppid, 0));
    }
    fs::create_dir(fake.dir.path().join("99")).expect("a process that is just ending");
    let proc = fake.proc();
    assert_eq!(proc.pids().unwrap(), [1, 10, 11, 12, 20, 30, 31, 99]);
    let family = proc.family().unwrap();
    assert_eq!(family.with_descendants(&[10]), [10, 11, 12]);
    assert_eq!(family.with_descendants(&[20, 10]), [10, 11, 12, 20]);
    assert_eq!(family.with_descendants(&[30]), [30, 31]);
    assert_eq!(family.with_descendants(&[5]), [5]);
    assert_eq!(family.children(1), [10, 20]);
}

#[test]
fn children_are_those_of_all_threads() {
    let fake = FakeProc::new()
        .file("7/task/7/children", "12 9 0 ")
        .file("7/task/8/children", "")
        .file("7/task/10/children", "11 12 ")
        .file("7/task/6/comm", "a thread that is just ending")
        .file("9/task/9/children", "")
        .file("13/task/13/children", "14 x ");
    let proc = fake.proc();
    assert_eq!(proc.threads(7).unwrap(), [6, 7, 8, 10]);
    assert_eq!(proc.children(7).unwrap(), [9, 11, 12]);
    assert_eq!(proc.children(9).unwrap(), []);
    assert!(matches!(proc.children(13), Err(Error::Parse { item: "pid", got, .. }) if got == "x"));
    assert!(proc.children(5).unwrap_err().is_gone());
}

#[test]
fn children_are_found_without_a_file_that_lists_them() {
    let mut fake =
        FakeProc::new().file("10/task/10/comm", "x").file("10/task/12/comm", "x").file("30/task/30/comm", "x");
    for (pid, ppid) in [(1, 0), (10, 1), (11, 10), (13, 11), (20, 10)] {
        fake = fake.file(&format!("{pid}/stat"), stat_line(pid, "x", 'S', ppid, 0));
    }
    let proc = fake.proc();
    assert_eq!(proc.children(10).unwrap(), [11, 20]);
    assert!(proc.children(30).unwrap_err().is_gone(), "it ended while its threads were listed");
}

#[test]
fn a_family_is_found_without_reading_other_processes() {
    // 11 has got the pid of a child of 10 since 10 was read. 40 belongs to nobody here, and reading it fails.
    let mut fake = FakeProc::new().file("40/stat", "x").file("self/stat", "").file("uptime", "");
    for (pid, ppid, children) in [(10, 1, "11 12 15 "), (11, 1, "40 "), (12, 10, "13 "), (13, 12, "10 "), (20, 1, "")] {
        fake = fake.file(&format!("{pid}/stat"), stat_line(pid, "x", 'S', ppid, 0));
        fake = fake.file(&format!("{pid}/task/{pid}/children"), children);
    }
    let proc = fake.proc();
    assert!(proc.family().is_err());
    let family = proc.family_of(&[10, 20, 30]).unwrap();
    assert_eq!(family.with_descendants(&[10, 20]), [10, 12, 13, 20]);
    assert_eq!(family.identity(30), None);
    assert_eq!(family.identity(11), None);
    // A process that is known to be ours stays so with any parent.
    assert!(proc.family_of(&[10, 11]).is_err(), "40 is read as a child of 11");
}

#[test]
fn all_processes_are_read_where_children_are_not_listed_or_threads_are_many() {
    let mut fake = FakeProc::new().file("self/stat", "").file("uptime", "");
    for (pid, ppid) in [(1, 0), (10, 1), (11, 10), (20, 1)] {
        fake = fake
            .file(&format!("{pid}/stat"), stat_line(pid, "x", 'S', ppid, 0))
            .file(&format!("{pid}/task/{pid}/comm"), "x");
    }
    let family = fake.proc().family_of(&[10]).unwrap();
    assert_eq!(family.with_descendants(&[10]), [10, 11]);
    assert!(family.identity(20).is_some());
    // The list of 10 is not read, as it has more threads than there are processes: it would lack 11.
    let many = stat_line(10, "x", 'S', 1, 0).replace(" 20 0 3 0 4711", " 20 0 65 0 4711");
    let fake = fake.file("10/stat", many).file("10/task/10/children", "");
    assert_eq!(fake.proc().family_of(&[10]).unwrap().with_descendants(&[10]), [10, 11]);
}

#[test]
fn an_image_that_is_hidden_or_not_there_yet_is_none() {
    let hidden = stat_line(7, "x", 'S', 1, 0).replace("4194304 4198400 140730", "1 1 0");
    assert_eq!(stat::Stat::parse(hidden.as_bytes()).unwrap().image(), None);
    let in_exec = stat_line(7, "x", 'S', 1, 0).replace("4194304 4198400 140730", "0 0 140730");
    assert_eq!(stat::Stat::parse(in_exec.as_bytes()).unwrap().image(), None);
    let shown = stat::Stat::parse(stat_line(7, "x", 'S', 1, 0).as_bytes()).unwrap();
    assert_eq!(shown.image(), Some((4_194_304, 140_730)));
}

/// A child that is killed and waited for on drop.
struct Child(std::process::Child);

impl Child {
    fn run(program: &str, args: &[&str]) -> Child {
        Child(std::process::Command::new(program).args(args).spawn().expect("start a child"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}

#[test]
fn our_own_child_is_listed_by_either_way() {
    let child = Child::run("sleep", &["600"]);
    let (proc, me) = (Proc::default(), std::process::id());
    assert!(proc.children(me).unwrap().contains(&child.0.id()));
    assert!(proc.family().unwrap().children(me).contains(&child.0.id()));
    assert!(proc.family_of(&[me]).unwrap().children(me).contains(&child.0.id()));
    assert!(proc.threads(me).unwrap().contains(&me));
    assert_eq!(proc.children(child.0.id()).unwrap(), []);
}

#[test]
fn an_exec_changes_the_image_and_not_the_start_time() {
    let child = Child::run("sh", &["-c", "sleep 2; exec sleep 600"]);
    let proc = Proc::default();
    let becomes = |comm: &str| {
        for _ in 0..1000 {
            match proc.stat(child.0.id()).unwrap() {
                stat if stat.comm == comm && stat.image().is_some() => return stat,
                _ => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        panic!("{comm} has not started in ten seconds");
    };
    let before = becomes("sh");
    assert_eq!(becomes("sh").image(), before.image());
    let after = becomes("sleep");
    assert_ne!(after.image(), before.image());
    assert_eq!(after.identity(), before.identity());
}

#[test]
fn a_process_that_holds_a_guest_is_told_by_its_descriptors() {
    for (target, holds) in [
        ("anon_inode:kvm-vm", true),
        ("anon_inode:kvm-vcpu:0", true),
        ("anon_inode:[eventfd]", false),
        ("/dev/kvm", false),
        ("/tmp/anon_inode:kvm-vm", false),
    ] {
        let fake = FakeProc::new().file("7/fd/.keep", "");
        std::os::unix::fs::symlink("/dev/null", fake.dir.path().join("7/fd/0")).unwrap();
        std::os::unix::fs::symlink(target, fake.dir.path().join("7/fd/9")).unwrap();
        assert_eq!(fake.proc().holds_guest(7).unwrap(), holds, "{target}");
    }
    assert!(FakeProc::new().proc().holds_guest(7).unwrap_err().is_gone());
}

#[test]
fn the_program_file_gives_the_name() {
    let fake = FakeProc::new().file("7/stat", stat_line(7, "other", 'S', 1, 0));
    std::os::unix::fs::symlink("/opt/a b/redis-server (deleted)", fake.dir.path().join("7/exe")).expect("link");
    assert_eq!(fake.proc().exe_name(7).unwrap().as_deref(), Some("redis-server"));
}

const SMAPS: &str = "\
55d0c0000000-55d0c0021000 r--p 00000000 fe:00 247026                     /usr/bin/my server
Size:                132 kB
Rss:                 100 kB
Pss:                  50 kB
Pss_Dirty:             0 kB
Shared_Clean:         90 kB
Shared_Dirty:          6 kB
Referenced:           80 kB
Anonymous:             4 kB
THPeligible:           0
VmFlags: rd mr mw me 
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                4096 kB
Referenced:         2048 kB
Anonymous:          4096 kB
AnonHugePages:      2048 kB
SomethingNew:          7 kB
THPeligible:           1
VmFlags: rd wr mr mw me lo nh zz sd 
";

#[test]
fn smaps_comes_one_mapping_at_a_time() {
    let fake = FakeProc::new().file("7/smaps", SMAPS);
    let entries: Vec<SmapsEntry> = fake.proc().smaps(7).unwrap().collect::<Result<_>>().unwrap();
    let [file, anon] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(&*file.map.name, "/usr/bin/my server");
    assert_eq!((file.usage.rss, file.usage.referenced), (Bytes(100 << 10), Bytes(80 << 10)));
    assert_eq!(file.usage.shared(), Bytes(96 << 10));
    assert_eq!((file.thp_eligible, file.flags.unwrap().can_madv_cold()), (Some(false), true));
    assert_eq!((anon.usage.anon_huge, anon.usage.huge()), (Bytes(2 << 20), Bytes(2 << 20)));
    let flags = anon.flags.unwrap();
    assert!(flags.contains(VmFlags::LOCKED) && flags.contains(VmFlags::HUGE_REFUSED));
    assert!(!flags.contains(VmFlags::HUGETLB) && !flags.can_madv_cold());
}

#[test]
fn broken_smaps_say_where_and_end() {
    for (text, line) in [
        ("Rss: 5 kB\n", 1),
        ("1000-2000 r--p 00000000 00:00 0 \nRss: five kB\n", 2),
        ("1000-2000 r--p 00000000 00:00 0 \nRss: 5\n", 2),
        ("1000-2000 r--p 00000000 00:00 0 \nRss: 18446744073709551615 kB\n", 2),
        ("1000-2000 r--p\n", 1),
    ] {
        let mut smaps = Smaps::new(Some(text.as_bytes()), "smaps");
        assert!(matches!(smaps.next(), Some(Err(Error::Parse { line: at, .. })) if at == line), "{text}");
        assert!(smaps.next().is_none());
    }
}

#[test]
fn the_rollup_is_one_sum() {
    let text = "559e17d4d000-7ffce48d7000 ---p 00000000 00:00 0                          [rollup]\nRss:   1728 kB\nReferenced:  1024 kB\n";
    let fake = FakeProc::new().file("7/smaps_rollup", text);
    let usage = fake.proc().smaps_rollup(7).unwrap();
    assert_eq!((usage.rss, usage.referenced), (Bytes(1728 << 10), Bytes(1 << 20)));
}

#[test]
fn membership_takes_v1_memory_before_v2_and_colons_in_paths() {
    for (text, unified, memory) in [
        ("0::/user.slice/a:b\n", Some("/user.slice/a:b"), None),
        ("4:memory:/jobs/1\n1:cpu,cpuacct:/\n0::/\n", Some("/"), Some("/jobs/1")),
        ("9:name=memory:/x\n2:cpu,memory:/y\n", None, Some("/y")),
        ("", None, None),
    ] {
        let fake = FakeProc::new().file("7/cgroup", text);
        let membership = fake.proc().membership(7).unwrap();
        assert_eq!((membership.unified.as_deref(), membership.memory_v1.as_deref()), (unified, memory));
        assert_eq!(membership.memory_path(), memory.or(unified));
    }
    let fake = FakeProc::new().file("7/cgroup", "4:memory:/x\nnonsense\n");
    assert!(matches!(fake.proc().membership(7), Err(Error::Parse { line: 2, .. })));
}

#[test]
fn scans_for_hint_faults_are_counted_where_the_kernel_tells() {
    let sched = "sh (7, #threads: 1)\n-----\nse.exec_start        :   1.5\nmm->numa_scan_seq                            :                    2\n";
    let fake = FakeProc::new()
        .file("7/sched", sched)
        .file("8/sched", "se.exec_start : 1\n")
        .file("9/sched", "mm->numa_scan_seq");
    let of = |pid| fake.proc().numa_scans(pid);
    assert_eq!([of(7), of(8), of(9), of(10)], [Some(2), None, None, None]);
    assert_eq!(fake.proc().numa_updates(), None);
    let fake = fake.file("vmstat", "numa_hit 5\nnuma_pte_updates 41008\nnuma_huge_pte_updates 3\n");
    assert_eq!(fake.proc().numa_updates(), Some(41_008));
}

/// A machine with both hierarchies, mounted under a directory with a space.
fn hybrid() -> FakeProc {
    let fake = FakeProc::new();
    let base = fake.dir.path().join("cg roup");
    let escaped = base.to_str().expect("utf-8").replace(' ', "\\040");
    let mountinfo = format!(
        "23 1 0:21 / /sys rw - sysfs sysfs rw\n\
         31 23 0:28 / {escaped} rw - tmpfs tmpfs rw\n\
         41 31 0:38 / {escaped}/unified rw shared:9 - cgroup2 cgroup2 rw\n\
         32 31 0:29 / {escaped}/cpu rw - cgroup cgroup rw,cpu\n\
         35 31 0:32 /docker/abc {escaped}/memory rw shared:1 master:2 - cgroup cgroup rw,memory\n"
    );
    fake.file("self/mountinfo", mountinfo)
        .file("cg roup/unified/cgroup.procs", "1\n")
        .file("cg roup/unified/both/cgroup.procs", "77\n")
        .file("cg roup/unified/new/cgroup.procs", "8\n")
        .file("cg roup/memory/cgroup.procs", "1\n0\n")
        .file("cg roup/memory/both/cgroup.procs", "")
        .file("cg roup/memory/jobs/cgroup.procs", "30\n10\n")
        .file("cg roup/memory/jobs/a/cgroup.procs", "20\n10\n")
        .file("cg roup/memory/jobs/a/deep/cgroup.procs", "40\n")
        .file("cg roup/memory/notacgroup/file", "")
}

#[test]
fn a_cgroup_is_found_however_it_is_named() {
    let fake = hybrid();
    let cgroups = fake.proc().cgroups().unwrap();
    assert_eq!(cgroups.hierarchies().len(), 2);
    assert_eq!(cgroups.hierarchies()[0].kind, CgroupKind::MemoryV1);
    let dir = fs::canonicalize(fake.dir.path()).expect("exists").join("cg roup/memory/jobs");
    for asked in
        [dir.to_str().expect("utf-8"), &format!("{}/a/..", dir.display()), "/jobs", "jobs/", "/docker/abc/jobs"]
    {
        let cgroup = cgroups.find(asked).unwrap();
        assert_eq!((cgroup.kind, &*cgroup.path), (CgroupKind::MemoryV1, "/docker/abc/jobs"), "{asked}");
        assert_eq!(cgroup.processes().unwrap(), [10, 20, 30, 40]);
    }
    assert_eq!(cgroups.find("/new").unwrap().kind, CgroupKind::Unified);
    assert_eq!(cgroups.find("/both").unwrap().kind, CgroupKind::Unified, "the one with processes");
    assert_eq!(cgroups.find("/").unwrap().processes().unwrap(), [1, 10, 20, 30, 40]);
    let all_seen = |path| cgroups.find(path).unwrap().processes_if_all_seen().unwrap();
    assert_eq!(all_seen("/jobs"), Some(vec![10, 20, 30, 40]));
    assert_eq!(all_seen("/"), None, "one is in another pid namespace");
}

#[test]
fn cgroups_that_could_not_be_read_are_read_the_next_time() {
    let (fake, mut known) = (FakeProc::new(), None);
    assert!(fake.proc().known_cgroups(&mut known).is_none());
    let fake = fake.file("self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    assert_eq!(fake.proc().known_cgroups(&mut known).map(|cgroups| cgroups.hierarchies().len()), Some(1));
}

#[test]
fn perf_events_know_a_cgroup_by_a_directory_of_their_own() {
    // The v2 hierarchy has the controller if no v1 hierarchy has.
    let fake = hybrid();
    let cgroups = fake.proc().cgroups().unwrap();
    let dir = |path: &str| cgroups.of_perf_events(&cgroups.find(path).unwrap());
    assert_eq!(dir("/new"), Some(cgroups.find("/new").unwrap().dir));
    assert_eq!(dir("/jobs"), None, "the memory controller's is not theirs");
    // With a hierarchy of their own: there, if it has the same processes under the same path.
    let base = fake.dir.path().join("cg roup");
    let escaped = base.to_str().expect("utf-8").replace(' ', "\\040");
    let mountinfo = fs::read_to_string(fake.dir.path().join("self/mountinfo")).expect("written")
        + &format!("36 31 0:33 /docker/abc {escaped}/perf rw - cgroup cgroup rw,perf_event\n");
    let fake = fake
        .file("self/mountinfo", mountinfo)
        .file("cg roup/perf/jobs/cgroup.procs", "10\n20\n30\n40\n")
        .file("cg roup/perf/both/cgroup.procs", "1\n");
    let cgroups = fake.proc().cgroups().unwrap();
    assert_eq!(cgroups.hierarchies().len(), 2, "nobody names cgroups in it");
    let dir = |path: &str| cgroups.of_perf_events(&cgroups.find(path).unwrap());
    assert_eq!(dir("/jobs"), Some(base.join("perf/jobs")));
    assert_eq!(dir("/both"), None, "other processes");
    assert_eq!(dir("/new"), None, "not there");
}

#[test]
fn a_cgroup_that_is_not_there_lists_where_it_was_looked_for() {
    let cgroups = hybrid().proc().cgroups().unwrap();
    for asked in ["/nope", "", "../..", "/jobs/../../x", "/notacgroup", "/proc"] {
        let text = cgroups.find(asked).unwrap_err().to_string();
        assert!(text.contains("memory (v1) at ") && text.contains("unified (v2) at "), "{text}");
    }
    let none = Cgroups::default().find("/x").unwrap_err().to_string();
    assert!(none.contains("no cgroup hierarchy is mounted"), "{none}");
}

#[test]
fn a_process_leads_to_its_cgroup() {
    let fake = hybrid().file("7/cgroup", "4:memory:/docker/abc/jobs/a\n0::/new\n").file("8/cgroup", "0::/new\n");
    let cgroups = fake.proc().cgroups().unwrap();
    let of = |pid| cgroups.of(&fake.proc().membership(pid).unwrap()).unwrap();
    assert_eq!((of(7).kind, &*of(7).path), (CgroupKind::MemoryV1, "/docker/abc/jobs/a"));
    assert_eq!((of(8).kind, &*of(8).path), (CgroupKind::Unified, "/new"));
}

#[test]
fn a_cgroup_that_was_removed_is_gone() {
    let fake = hybrid();
    let cgroup = fake.proc().cgroups().unwrap().find("/jobs").unwrap();
    fs::remove_dir_all(&cgroup.dir).expect("remove");
    assert!(cgroup.processes().unwrap_err().is_gone());
}

#[test]
fn no_damage_to_a_file_makes_a_parser_panic() {
    let texts: [&[u8]; 6] = [
        MAPS.as_bytes(),
        SMAPS.as_bytes(),
        b"812 (a ) b) R 17 1 1 0 -1 0 11 12 13 14 15 16 17 18 20 0 3 0 4711 1000 2 3 4 5 6 7\n",
        b"Name:\tx\nUid:\t1\t1\t1\t1\nVmRSS:\t 1644 kB\nCapEff:\t01ff\n",
        b"4:memory:/jobs/1\n0::/x\n",
        b"35 31 0:32 /docker/abc /sys/fs/cg\\040x rw shared:1 master:2 - cgroup cgroup rw,memory\n",
    ];
    let parse_all = |text: &[u8]| {
        let _ = Maps::from_text(text);
        let _ = Smaps::new(Some(text), "smaps").count();
        let _ = Usage::parse_rollup(text);
        let _ = stat::Stat::parse(text);
        let _ = Status::parse(text);
        let _ = Membership::parse(text);
        let _ = Cgroups::parse(text);
        let _ = parse_pids(text, &mut Vec::new());
    };
    for text in texts {
        for at in 0..text.len() {
            parse_all(&text[..at]);
            for byte in *b"\0 \n:()-\\9f\xff" {
                let mut damaged = text.to_vec();
                damaged[at] = byte;
                parse_all(&damaged);
            }
        }
    }
}

/// As many lines as the kernel allows mappings.
fn full_maps() -> String {
    let mut text = String::new();
    for i in 0..65_530u64 {
        let start = 0x7f00_0000_0000 + i * 0x2000;
        let name =
            ["", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "[anon:arena]"][usize::try_from(i % 3).expect("small")];
        writeln!(text, "{start:x}-{:x} rw-p {i:08x} fe:00 {i:<27}{name}", start + 0x1000).expect("to a string");
    }
    text
}

#[test]
fn the_most_mappings_a_process_may_have_are_read() {
    let fake = FakeProc::new().file("7/maps", full_maps());
    let maps = fake.proc().maps(7).unwrap();
    assert_eq!(maps.len(), 65_530);
    assert_eq!(maps[65_529].inode, 65_529);
    assert_eq!(&*maps[65_528].name, "[anon:arena]");
}

#[test]
#[ignore = "prints a time"]
fn time_of_a_maps_line() {
    let fake = FakeProc::new().file("7/maps", full_maps());
    let (proc, mut maps) = (fake.proc(), Maps::default());
    for _ in 0..5 {
        let start = std::time::Instant::now();
        let lines = maps.read(&proc, 7).unwrap().len();
        println!("{} ns a line", start.elapsed().as_nanos() / lines as u128);
    }
}

#[test]
fn the_real_proc_has_this_process() {
    let proc = Proc::default();
    let pid = std::process::id();
    let id = proc.identity(pid).unwrap();
    assert!(proc.is_alive(id).unwrap());
    assert!(proc.pids().unwrap().contains(&pid));
    let maps = proc.maps(pid).unwrap();
    let here = Addr(std::ptr::from_ref(&id).addr() as u64);
    assert!(maps.iter().any(|m| m.range.contains(here) && m.is_monitorable()));
    let smaps: Vec<SmapsEntry> = proc.smaps(pid).unwrap().collect::<Result<_>>().unwrap();
    assert!(smaps.iter().any(|s| s.usage.rss.0 > 0));
    assert!(proc.smaps_rollup(pid).unwrap().rss.0 > 0);
    assert!(proc.exe_name(pid).unwrap().is_some());
    assert!(proc.family().unwrap().with_descendants(&[pid]).contains(&pid));
    proc.cgroups().unwrap();
    proc.membership(pid).unwrap();
}

#[test]
fn a_thread_has_a_state_and_has_run_once_it_was_given_a_processor() {
    let root = tempfile::tempdir().unwrap();
    for (tid, text) in [(8, "0 0 0\n"), (9, "0 1200 1\n"), (10, "nonsense\n")] {
        let task = root.path().join(format!("7/task/{tid}"));
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("schedstat"), text).unwrap();
    }
    let line = "8 (a) S) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0\n";
    std::fs::write(root.path().join("7/task/8/stat"), line).unwrap();
    let proc = Proc::at(root.path());
    assert_eq!(proc.thread_state(7, 8).unwrap(), 'D');
    assert!(proc.thread_state(7, 9).unwrap_err().is_gone());
    let told = [8, 9, 10, 11].map(|tid| proc.has_run(7, tid));
    assert_eq!(told, [Some(false), Some(true), None, None]);
}

#[test]
fn rss_is_the_second_number_of_statm() {
    let fake = FakeProc::new().file("7/task/8/statm", "1000 250 30 1 0 400 0\n").file("7/task/7/statm", "1000\n");
    assert_eq!(fake.proc().rss(7, 8).unwrap(), Bytes(250 * 4096));
    assert!(fake.proc().rss(7, 7).unwrap_err().to_string().contains("resident"));
    assert!(fake.proc().rss(9, 9).unwrap_err().is_gone());
}
