//! `move_pages(2)`: on which NUMA node each page of a process is, and moving pages to another node.
//!
//! It names the process by its pid. So a caller that must not hit a later process with the same pid checks the start time before
//! and after. It obeys the cpuset of the target, and moves only pages that no other process maps. Of a huge page it takes the
//! address of any of its pages and moves all of it.

use isotherm_units::PageNo;
use std::io;

/// Moves pages that only this process maps.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this node.
    Node(u32),
    /// No frame: never touched, in swap, or the zero page.
    Absent,
    /// It was to be moved and is still where it was: with this errno.
    Stays(i32),
}

impl Place {
    fn of(status: libc::c_int) -> Place {
        match u32::try_from(status) {
            Ok(node) => Place::Node(node),
            Err(_) if [-libc::ENOENT, -libc::EFAULT].contains(&status) => Place::Absent,
            Err(_) => Place::Stays(-status),
        }
    }
}

/// On which node each of these pages is. Needs the right to ptrace the process. About 0.2 us a page.
pub fn places(pid: u32, pages: &[PageNo]) -> io::Result<Vec<Place>> {
    call(pid, pages, None)
}

/// Moves these pages to `node`. Returns where each is then; an error only if none was tried. Needs the right to ptrace the process.
///
/// The kernel stops after the first batch of which a page did not move. It is called again for what it did not try.
pub fn move_to(pid: u32, pages: &[PageNo], node: u32) -> io::Result<Vec<Place>> {
    let mut all: Vec<Place> = Vec::with_capacity(pages.len());
    while all.len() < pages.len() {
        match call(pid, &pages[all.len()..], Some(node)) {
            // All are untried if the first batch failed as a whole.
            Ok(found) if found.is_empty() => all.push(Place::Stays(libc::EAGAIN)),
            Ok(found) => all.extend(found),
            Err(error) if all.is_empty() => return Err(error),
            Err(_) => all.resize(pages.len(), Place::Stays(libc::EAGAIN)),
        }
    }
    Ok(all)
}

/// No status of the kernel: the page was not tried.
const UNTRIED: libc::c_int = libc::c_int::MIN;

/// Where the pages are, up to the first that was not tried.
fn call(pid: u32, pages: &[PageNo], node: Option<u32>) -> io::Result<Vec<Place>> {
    let no_such = |_| io::Error::from_raw_os_error(libc::ESRCH);
    let pid = libc::pid_t::try_from(pid).map_err(no_such)?;
    let addresses: Vec<u64> = pages.iter().map(|page| page.addr().0).collect();
    let nodes: Option<Vec<libc::c_int>> = node.map(|node| vec![libc::c_int::try_from(node).unwrap_or(-1); pages.len()]);
    let mut status: Vec<libc::c_int> = vec![UNTRIED; pages.len()];
    // SAFETY: the three arrays have as many items as is passed, and outlive the call; the addresses are of another address space, and
    // are not followed in this one. Without nodes the kernel only fills in the status.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            addresses.as_ptr(),
            nodes.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // A positive result is the number of pages that were not moved.
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status.into_iter().take_while(|status| *status != UNTRIED).map(Place::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};

    #[test]
    fn own_pages_are_on_a_node_or_absent() {
        let memory = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
        memory.write(1);
        let first = memory.range().start.page();
        let found = places(std::process::id(), &[first, PageNo(first.0 + 1)]).unwrap();
        assert_eq!(found[0], Place::Absent);
        let Place::Node(node) = found[1] else { panic!("{found:?}") };
        // To where it is already.
        assert_eq!(move_to(std::process::id(), &[PageNo(first.0 + 1)], node).unwrap(), [Place::Node(node)]);
        // No machine has this node.
        let error = move_to(std::process::id(), &[PageNo(first.0 + 1)], 1023).unwrap_err();
        assert!([libc::ENODEV, libc::EACCES].contains(&error.raw_os_error().unwrap()), "{error}");
        assert_eq!(places(u32::MAX, &[first]).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(places(std::process::id(), &[]).unwrap(), []);
    }

    #[test]
    fn a_status_is_a_node_or_an_errno() {
        assert_eq!([0, 3].map(Place::of), [Place::Node(0), Place::Node(3)]);
        assert_eq!([-libc::ENOENT, -libc::EFAULT].map(Place::of), [Place::Absent; 2]);
        assert_eq!(Place::of(-libc::EBUSY), Place::Stays(libc::EBUSY));
    }
}
