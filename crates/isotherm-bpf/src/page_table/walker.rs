//! The loaded program: passes over a thread's page tables, and the links that they need.

use super::answer::{Answer, FolioPmd, Kind, Op, Pass};
use super::error::Error;
use super::mapped::MappedArray;
use super::self_check;
use crate::skeletons::walk::{OpenWalkSkel, WalkSkel, WalkSkelBuilder};
use isotherm_units::Addr;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, OpenObject, ProgramInput};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Requests in one pass. This bounds the time that the target's lock is held to about 2 ms.
pub const MAX_REQUESTS: usize = 1024;
/// Requests in one pass of [`Walker::folios`], which reads two words of the kernel per page: about a millisecond.
pub const MAX_FOLIO_REQUESTS: usize = 16;

/// The loaded page-table reader.
pub struct Walker {
    // Drop order: links and mappings before the program that they belong to.
    links: HashMap<u32, OwnedLink>,
    requests: MappedArray<u64>,
    answers: MappedArray<Answer>,
    folios: MappedArray<FolioPmd>,
    skel: WalkSkel<'static>,
}

impl std::fmt::Debug for Walker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct OwnedLink(NonNull<libbpf_sys::bpf_link>);

// SAFETY: a bpf_link is a heap object tied to no thread; this wrapper has the only pointer to it.
unsafe impl Send for OwnedLink {}

impl Drop for OwnedLink {
    fn drop(&mut self) {
        // SAFETY: the pointer came from bpf_program__attach_iter and is destroyed once, here.
        unsafe { libbpf_sys::bpf_link__destroy(self.0.as_ptr()) };
    }
}

impl Walker {
    /// Loads the program and checks on our own pages that it reads correctly. About 12 ms of CPU time, most of which libbpf
    /// needs to find the kernel's types.
    pub fn open() -> Result<Walker, Error> {
        Walker::load(false)
    }

    /// The same for [`Walker::folios`] as well: 2 ms more.
    pub fn open_with_folios() -> Result<Walker, Error> {
        Walker::load(true)
    }

    fn load(folios: bool) -> Result<Walker, Error> {
        libbpf_rs::set_print(None);
        let load_error = |e: libbpf_rs::Error| Error::load(&e);
        // The skeleton borrows its storage for as long as it lives. One walker lives as long as the monitor, so the
        // storage, a few hundred bytes, is leaked.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open: OpenWalkSkel<'static> = WalkSkelBuilder::default().open(storage).map_err(load_error)?;
        open.progs.find_page_layout.set_autoload(folios);
        let skel = open.load().map_err(load_error)?;
        skel.progs.find_layout.test_run(ProgramInput::default()).map_err(load_error)?;
        if folios {
            skel.progs.find_page_layout.test_run(ProgramInput::default()).map_err(load_error)?;
        }
        let map_error = |name: &str, source| Error::Io { attempted: format!("map the array '{name}'"), source };
        let requests =
            MappedArray::new(skel.maps.requests.as_fd(), MAX_REQUESTS).map_err(|e| map_error("requests", e))?;
        let answers = MappedArray::new(skel.maps.answers.as_fd(), MAX_REQUESTS).map_err(|e| map_error("answers", e))?;
        let folios =
            MappedArray::new(skel.maps.folios.as_fd(), MAX_FOLIO_REQUESTS).map_err(|e| map_error("folios", e))?;
        let mut walker = Walker { links: HashMap::new(), requests, answers, folios, skel };
        let me = std::process::id();
        self_check::run(me, &mut |op, addr| {
            let (pass, answers) = walker.pass(me, op, &[addr])?;
            Ok((pass, answers.first().copied()))
        })
        .map_err(|e| if walker.symbols_are_hidden() { e.with_hidden_symbols() } else { e })?;
        Ok(walker)
    }

    /// Answers for `addresses` (sorted, at most [`MAX_REQUESTS`], each within a mapping) of thread `tid`.
    ///
    /// The pass may end early (`done`, `busy`); the answers returned are those of the first `done` addresses.
    pub fn pass(&mut self, tid: u32, op: Op, addresses: &[Addr]) -> Result<(Pass, &[Answer]), Error> {
        let count = addresses.len().min(MAX_REQUESTS);
        for (slot, addr) in self.requests.as_mut_slice().iter_mut().zip(addresses) {
            *slot = addr.0;
        }
        let bss = self.skel.maps.bss_data.as_deref_mut().expect("the program has global data");
        bss.order.tid = tid.cast_signed();
        bss.order.op = op as u32;
        bss.order.count = u32::try_from(count).unwrap_or(u32::MAX);
        bss.outcome = Default::default();
        let failed = |source| Error::Io { attempted: format!("read the page tables of process {tid}"), source };
        self.run(tid).map_err(failed)?;
        let out = &self.skel.maps.bss_data.as_deref().expect("the program has global data").outcome;
        let pass = Pass {
            done: usize::try_from(out.done).unwrap_or(0).min(count),
            busy: out.busy != 0,
            has_memory: out.seen != 0 && out.no_mm == 0,
            read_errors: out.read_errors,
            longest_hold_ns: out.longest_hold_ns,
            mm_id: out.mm_id,
            start_boottime_ns: out.start_boottime,
        };
        Ok((pass, &self.answers.as_slice()[..pass.done]))
    }

    /// The same for [`Op::Folios`]: at most [`MAX_FOLIO_REQUESTS`] addresses, and for each the kind of the huge range and
    /// its folios, if [`Walker::knows_folios`]. The folios are valid if the kind is [`Kind::Pages`] or [`Kind::Leaf2M`].
    pub fn folios<'a>(
        &'a mut self,
        tid: u32,
        addresses: &[Addr],
    ) -> Result<(Pass, impl Iterator<Item = (Kind, &'a FolioPmd)> + use<'a>), Error> {
        let addresses = &addresses[..addresses.len().min(MAX_FOLIO_REQUESTS)];
        let (pass, _) = self.pass(tid, Op::Folios, addresses)?;
        let kinds = self.answers.as_slice()[..pass.done].iter().map(Answer::kind);
        Ok((pass, kinds.zip(self.folios.as_slice())))
    }

    /// Whether folio flags can be read: on this kernel, and by a walker of [`Walker::open_with_folios`].
    pub fn knows_folios(&self) -> bool {
        self.skel.maps.bss_data.as_deref().expect("the program has global data").layout.page_bytes != 0
    }

    fn symbols_are_hidden(&self) -> bool {
        self.skel.maps.bss_data.as_deref().expect("the program has global data").layout.hidden != 0
    }

    /// Forgets a thread that is not needed any more.
    pub fn forget(&mut self, tid: u32) {
        self.links.remove(&tid);
    }

    /// Levels of the page tables: 4 or 5.
    pub fn levels(&self) -> u32 {
        let layout = &self.skel.maps.bss_data.as_deref().expect("the program has global data").layout;
        if layout.top_shift == 48 { 5 } else { 4 }
    }

    fn run(&mut self, tid: u32) -> io::Result<()> {
        if !self.links.contains_key(&tid) {
            let link = self.attach(tid)?;
            self.links.insert(tid, link);
        }
        let link = &self.links[&tid];
        // SAFETY: the link is alive; its descriptor is only borrowed by the kernel for this call.
        let fd = unsafe { libbpf_sys::bpf_iter_create(libbpf_sys::bpf_link__fd(link.0.as_ptr())) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: bpf_iter_create returned a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        read_to_end(&fd)
    }

    fn attach(&self, tid: u32) -> io::Result<OwnedLink> {
        // SAFETY: an all-zero bpf_iter_link_info and bpf_iter_attach_opts are valid: every field is an integer or a pointer.
        let (mut info, mut opts): (libbpf_sys::bpf_iter_link_info, libbpf_sys::bpf_iter_attach_opts) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        info.task.tid = tid;
        opts.sz = size_of_val(&opts) as libbpf_sys::size_t;
        opts.link_info = &raw mut info;
        opts.link_info_len = u32::try_from(size_of_val(&info)).expect("a small struct");
        let program = self.skel.progs.walk.as_libbpf_object().as_ptr();
        // SAFETY: the program is loaded and lives as long as `self`; opts and info outlive the call.
        let link = unsafe { libbpf_sys::bpf_program__attach_iter(program, &raw const opts) };
        if let Some(link) = NonNull::new(link) {
            return Ok(OwnedLink(link));
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) {
            return Err(error);
        }
        // Before 6.1 the iterator has no filter: it steps over all threads, and the program skips all but `tid`.
        // SAFETY: as above; no options.
        let link = unsafe { libbpf_sys::bpf_program__attach_iter(program, std::ptr::null()) };
        NonNull::new(link).map(OwnedLink).ok_or_else(io::Error::last_os_error)
    }
}

/// Drives the iterator: the program runs as the file is read, and prints nothing.
fn read_to_end(fd: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0_u8; 64];
    loop {
        // SAFETY: the buffer is valid for its length, the descriptor is open.
        let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match n {
            0 => return Ok(()),
            1.. => {}
            _ => {
                let error = io::Error::last_os_error();
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                    return Err(error);
                }
            }
        }
    }
}
