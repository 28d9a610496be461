//! The memory that moments take together. What several of them share is counted once, for as long as any of them has it.
//!
//! A moment does not know whether another one has its mappings: they may come from a moment that has gone since. So the users of
//! each shared thing are counted, by its address.

use crate::moment::{Moment, Process};
use isotherm_heat::Mapping;
use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

/// What an allocation takes beyond its contents.
const ALLOCATION: usize = 16;
/// What a shared thing takes beyond its contents: counters, an allocation, and a place in the table.
const SHARED: usize = 64;

/// Bytes of moments.
#[derive(Debug, Default)]
pub struct Footprint {
    bytes: usize,
    /// Users of each shared thing, by its address.
    users: HashMap<usize, usize>,
}

impl Footprint {
    /// Of all moments in it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts a moment.
    pub fn add(&mut self, moment: &Moment) {
        self.bytes += moment.bytes();
        for part in parts(moment) {
            let users = self.users.entry(part.address()).or_default();
            *users += 1;
            if *users == 1 {
                self.bytes += part.bytes();
            }
        }
    }

    /// Counts a moment no more.
    pub fn remove(&mut self, moment: &Moment) {
        self.bytes -= moment.bytes();
        for part in parts(moment) {
            let Some(users) = self.users.get_mut(&part.address()) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&part.address());
                self.bytes -= part.bytes();
            }
        }
    }
}

/// A part of a moment that others may have, too.
enum Part<'a> {
    Text(&'a Arc<str>),
    Mappings(&'a Arc<[Mapping]>),
}

fn parts(moment: &Moment) -> impl Iterator<Item = Part<'_>> {
    let cgroups = moment.cgroups.iter().map(|(path, _)| Part::Text(path));
    moment.processes.iter().flat_map(|process| parts_of(process)).chain(cgroups)
}

fn parts_of(process: &Process) -> [Part<'_>; 3] {
    [Part::Text(&process.comm), Part::Text(&process.cgroup), Part::Mappings(&process.mappings)]
}

impl Part<'_> {
    fn address(&self) -> usize {
        match self {
            Part::Text(text) => Arc::as_ptr(text).addr(),
            Part::Mappings(mappings) => Arc::as_ptr(mappings).addr(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Part::Text(text) => SHARED + text.len(),
            Part::Mappings(mappings) => SHARED + mappings.iter().map(mapping_bytes).sum::<usize>(),
        }
    }
}

fn mapping_bytes(mapping: &Mapping) -> usize {
    let name = mapping.name.len();
    size_of::<Mapping>() + if name > 0 { name + ALLOCATION } else { 0 }
}
