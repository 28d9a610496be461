//! The part of the state that keeps the quotas of schemes.
//!
//! What is hinted is reserved, and what has left is spent: for pages of a process when the worker's result is taken in, for files of a cgroup
//! when the kernel has taken them. A hint that has to wait reserves nothing, or one process that may not swap would hold up all others.

use super::State;
use crate::quota::{HostMemory, QuotaStatus, Spending};
use crate::scheme::Scheme;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::collections::BTreeMap;

/// Accounts by the place of the scheme in the table.
pub(super) type Quotas = BTreeMap<usize, Spending>;

/// The accounts of the schemes that are in the new table, too. Cgroups that are assigned to one do not make it another.
pub(super) fn carried_over(mut quotas: Quotas, old: &[Scheme], new: &[Scheme]) -> Quotas {
    let mut carried = Quotas::new();
    for (place, scheme) in new.iter().enumerate().filter(|(_, scheme)| scheme.quota.is_some()) {
        let is_same = |at: &usize| old.get(*at).is_some_and(|old| old.is_but_for_cgroups(scheme));
        let before = quotas.keys().copied().filter(is_same).min_by_key(|at| at.abs_diff(place));
        carried.extend(before.and_then(|at| Some((place, quotas.remove(&at)?))));
    }
    carried
}

impl State {
    /// Takes in how much memory of the host is free, and for how long something has waited for memory.
    pub fn note_memory(&mut self, host: HostMemory, now: Ns) {
        if let Some(free_pct) = host.free_pct {
            self.free_pct = free_pct;
        }
        for (place, scheme) in self.schemes.iter().enumerate() {
            let Some(quota) = scheme.quota else { continue };
            self.quotas.entry(place).or_insert_with(|| Spending::new(quota, now)).note(host, now);
        }
    }

    /// The account of the scheme that pages out of a process, if it has a quota.
    fn account_of(&mut self, process: TargetId) -> Option<&mut Spending> {
        let place = self.actions.get(&process)?.pages_out_by;
        self.quotas.get_mut(&place)
    }

    /// Whether nothing of a process leaves because so much memory is free as the goal of its scheme says.
    pub(super) fn is_enough_free(&mut self, process: TargetId) -> bool {
        self.account_of(process).is_some_and(|account| account.is_enough_free())
    }

    /// How many pages of a process may be hinted in this interval; `None` for as many as there are. What is not hinted any more is not reserved.
    pub(super) fn quota_left(&mut self, process: TargetId) -> Option<u64> {
        let State { actions, quotas, targets, retry, .. } = self;
        let account = quotas.get_mut(&actions.get(&process)?.pages_out_by)?;
        let keeper = targets.get(&process).and_then(|target| target.keeper.as_ref());
        let is_hinted = |pmd| keeper.is_some_and(|keeper| keeper.is_hinted(pmd)) && !retry.is_deferred(process, pmd);
        account.keep(process, is_hinted);
        let left = account.left_pages();
        if left == 0 {
            account.hold_up();
        }
        Some(left)
    }

    /// Sets the idle pages of a huge range aside that is to be hinted. False if its quota has no room for it.
    pub(super) fn reserve(&mut self, process: TargetId, pmd: PmdNo) -> bool {
        if self.retry.is_deferred(process, pmd) {
            return true;
        }
        let idle = self.idle.clone();
        let pages = || idle.of(process, pmd).0.count();
        self.account_of(process).is_none_or(|account| account.reserve(process, pmd, pages()))
    }

    /// A huge range is not hinted any more, or waits. Its hint may be of a scheme that is not in force any more. Returns the pages that were set aside.
    pub(super) fn release(&mut self, process: TargetId, pmd: PmdNo) -> u64 {
        self.quotas.values_mut().map(|account| u64::from(account.release(process, pmd))).sum()
    }

    /// No huge range of a process is hinted any more.
    pub(super) fn release_all(&mut self, process: TargetId) {
        self.quotas.values_mut().for_each(|account| account.keep(process, |_| false));
    }

    /// Pages of a huge range have left. They are of the account that has set them aside: other schemes may be in force by now.
    pub(super) fn spend(&mut self, process: TargetId, pmd: PmdNo, pages: u64) {
        let aside = self.quotas.iter().find(|(_, account)| account.has_reserved(process, pmd)).map(|(place, _)| *place);
        let place = aside.or_else(|| Some(self.actions.get(&process)?.pages_out_by));
        if let Some(account) = place.and_then(|place| self.quotas.get_mut(&place)) {
            account.spend(pages);
        }
    }

    pub(super) fn quota_status(&self) -> Vec<QuotaStatus> {
        self.quotas.iter().map(|(place, account)| account.status(place + 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budgets;
    use crate::collapse::Rules;
    use crate::page_out::IdlePages;

    const PAGE_OUT: &str = "action = \"page-out\"\nprocesses = [\"db\"]\nquota = { size = \"2MiB\" }";
    const RECLAIM: &str = "action = \"reclaim\"\ncgroups = [\"/x\"]\nquota = { size = \"4MiB\" }";

    fn schemes(table: &[&str]) -> Vec<Scheme> {
        table.iter().map(|text| Scheme::new(toml::from_str(text).unwrap()).unwrap()).collect()
    }

    #[test]
    fn accounts_stay_with_their_schemes_when_the_table_changes() {
        let state = State::new(Rules::default(), Budgets::default());
        let mut state = state.with_schemes(schemes(&[PAGE_OUT, RECLAIM]), IdlePages::default());
        state.note_memory(HostMemory::default(), 1);
        state.quotas.values_mut().zip([100, 200]).for_each(|(account, pages)| account.spend(pages));
        let mut spent = |table: &[&str]| {
            state.set_schemes(schemes(table));
            state.note_memory(HostMemory::default(), 2);
            state.status().quotas.iter().map(|quota| (quota.scheme, quota.spent_bytes >> 12)).collect::<Vec<_>>()
        };
        assert_eq!(spent(&["action = \"collapse\"", PAGE_OUT, RECLAIM]), [(2, 100), (3, 200)]);
        assert_eq!(spent(&[RECLAIM, PAGE_OUT]), [(1, 200), (2, 100)]);
        let other = PAGE_OUT.replace("2MiB", "3MiB");
        assert_eq!(spent(&[&other, "action = \"collapse\""]), [(1, 0)], "another quota begins anew");
    }
}
