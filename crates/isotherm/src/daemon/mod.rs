//! What `isotherm run` is made of, besides the monitor and the state that its threads share ([`isotherm_schemes::state`]): its
//! settings ([`config`]; whose commands root runs: [`trust`]), and the socket for status and hints ([`socket`]).
//!
//! Four threads: the first watches and gives hints once a window, the second serves them, the third answers, the fourth measures
//! what is gained. One mutex guards all that they share. Nobody makes a system call while holding it: a collapse can take
//! seconds, and answers do not wait for it.

pub mod config;
mod place;
pub mod socket;
pub mod trust;

use crate::cli::BudgetArgs;
use anyhow::{Result, bail};
use isotherm_host::{HostFacts, HostRoots};
use isotherm_schemes::Budgets;
use isotherm_schemes::collapse::Rules;
use isotherm_units::PAGES_PER_BLOCK;

/// Fails where the kernel is known not to have MADV_COLLAPSE.
pub fn need_collapse() -> Result<()> {
    let host = HostFacts::read(&HostRoots::default(), isotherm_units::PAGE_SIZE);
    if host.kernel_since(6, 1) == Some(false) || host.thp.present == Some(false) {
        bail!(
            "this kernel cannot collapse memory on request: it takes Linux 6.1 with CONFIG_TRANSPARENT_HUGEPAGE; see `isotherm doctor`"
        );
    }
    Ok(())
}

/// What was given on the command line goes before what is there.
pub fn settings(args: &BudgetArgs, mut rules: Rules, mut budgets: Budgets) -> (Rules, Budgets) {
    let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
    set(&mut budgets.per_second, args.per_second);
    set(&mut budgets.cpu_pct, args.max_collapse_cpu);
    set(&mut budgets.stall_pct, args.max_stall);
    set(&mut budgets.growth_pct, args.max_growth);
    set(&mut budgets.headroom_pct, args.headroom);
    set(&mut budgets.pressure_pct, args.max_pressure);
    set(&mut budgets.cgroup_margin_pct, args.cgroup_margin);
    set(&mut rules.min_benefit_hz, args.min_benefit);
    budgets.free_blocks = args.free_blocks.unwrap_or(budgets.free_blocks);
    if let Some(percent) = args.min_present {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 512")]
        let pages = (percent / 100.0 * PAGES_PER_BLOCK as f64).ceil().clamp(0.0, PAGES_PER_BLOCK as f64) as u16;
        budgets.min_present = pages;
    }
    rules.min_present = budgets.min_present;
    rules.files |= args.files;
    (rules, budgets)
}
