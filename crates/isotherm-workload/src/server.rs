//! A running [`Store`] and its accesses, as its parent sees them.

use crate::{Child, PageCounts, Store};
use std::io;
use std::process::Command;

/// A store that runs, and its counts. It ends when this value is dropped.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub child: Child,
    /// Its accesses so far.
    pub counts: PageCounts,
}

impl Server {
    /// Starts `command`, which has to call [`crate::run_json`], as `store`. Waits until all its memory is populated.
    pub fn start(command: Command, store: &Store) -> io::Result<Server> {
        let counts = PageCounts::create(store.pages)?;
        let path = counts.path().ok_or_else(|| io::Error::other("the counts have no path"))?;
        let child = Child::start(command, &Store { counts: path, ..store.clone() })?;
        Ok(Server { child, counts })
    }
}
