//! The part of the state that keeps the quotas of schemes.
//!
//! What is hinted is reserved, and what has left is spent: for pages of a process when the worker's result is taken in, for files of a cgroup
//! when the kernel has taken them.

use super::State;
use crate::quota::{HostMemory, QuotaStatus, Spending};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::collections::BTreeMap;

/// Accounts by the place of the scheme in the table.
pub(super) type Quotas = BTreeMap<usize, Spending>;

impl State {
    /// Takes in how much memory of the host is free, and for how long something has waited for memory.
    pub fn note_memory(&mut self, host: HostMemory, now: Ns) {
        if let Some(free_pct) = host.free_pct {
            self.free_pct = free_pct;
        }
        for (place, scheme) in self.schemes.iter().enumerate() {
            let Some(quota) = scheme.quota else { continue };
            // The settings may have been read again.
            let account = self.quotas.entry(place).or_insert_with(|| Spending::new(quota, now));
            if account.quota() != quota {
                *account = Spending::new(quota, now);
            }
            account.note(host, now);
        }
        self.quotas.retain(|place, _| self.schemes.get(*place).is_some_and(|scheme| scheme.quota.is_some()));
    }

    /// The account of the scheme that pages out of a process, if it has a quota.
    fn account_of(&mut self, process: TargetId) -> Option<&mut Spending> {
        let place = self.actions.get(&process)?.pages_out_by;
        self.quotas.get_mut(&place)
    }

    /// How many pages of a process may be hinted in this interval; `None` for as many as there are.
    pub(super) fn quota_left(&mut self, process: TargetId) -> Option<u64> {
        let account = self.account_of(process)?;
        let left = account.left_pages();
        if left == 0 {
            account.hold_up();
        }
        Some(left)
    }

    /// Sets pages of a huge range aside that is to be hinted. False if its quota has no room for it.
    pub(super) fn reserve(&mut self, process: TargetId, pmd: PmdNo, pages: u32) -> bool {
        self.account_of(process).is_none_or(|account| account.reserve(process, pmd, pages))
    }

    /// A huge range is not hinted any more. It may have been by a scheme that is not in force any more. Returns the pages that were set aside.
    pub(super) fn release(&mut self, process: TargetId, pmd: PmdNo) -> u64 {
        self.quotas.values_mut().map(|account| u64::from(account.release(process, pmd))).sum()
    }

    /// No huge range of a process is hinted any more.
    pub(super) fn release_all(&mut self, process: TargetId) {
        self.quotas.values_mut().for_each(|account| account.release_all(process));
    }

    /// Pages of a process have left.
    pub(super) fn spend(&mut self, process: TargetId, pages: u64) {
        if let Some(account) = self.account_of(process) {
            account.spend(pages);
        }
    }

    pub(super) fn quota_status(&self) -> Vec<QuotaStatus> {
        self.quotas.iter().map(|(place, account)| account.status(place + 1)).collect()
    }
}
