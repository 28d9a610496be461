//! Budgets of actions. Those not given on the command line come from the configuration, or are the defaults.

use crate::args::values::{percent, percent_or_none, positive};
use clap::Args;
use isotherm_schemes::Budgets;
use isotherm_schemes::collapse::Rules;
use isotherm_units::PAGES_PER_PMD;

/// How much may be done. What is not given comes from the configuration, or is the default.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Budgets")]
pub struct BudgetArgs {
    /// Huge ranges tried per second, by all actions [default: 20]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub per_second: Option<f64>,
    /// CPU of the worker for all actions, percent of one core; over 100 lifts the limit [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_collapse_cpu: Option<f64>,
    /// Time for which actions may stall a target, percent; over 100 lifts the limit [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_stall: Option<f64>,
    /// Allowed growth of each process, percent of its resident memory; 0 allows none [default: 2]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub max_growth: Option<f64>,
    /// Share of a huge range's pages that must be present [default: 90%]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub min_present: Option<f64>,
    /// Accesses per second that a huge range must have, summed over its pages [default: 50]
    #[arg(long, value_name = "HZ", value_parser = positive)]
    pub min_benefit: Option<f64>,
    /// Available memory to keep in reserve, percent of all memory [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub headroom: Option<f64>,
    /// Free blocks of 2 MiB to keep in reserve, so that no compaction is needed [default: 64]
    #[arg(long, value_name = "N")]
    pub free_blocks: Option<u64>,
    /// Memory pressure (PSI some, ten seconds) above which to wait, of the host or of the target's cgroup, percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_pressure: Option<f64>,
    /// Room to leave below each limit of the target's memory cgroups, percent of that limit and at least 8 MiB; 0 leaves none [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub cgroup_margin: Option<f64>,
    /// Also try memory of files and shared memory
    #[arg(long)]
    pub files: bool,
}

impl BudgetArgs {
    /// Options on the command line override `rules` and `budgets`.
    pub fn over(&self, mut rules: Rules, mut budgets: Budgets) -> (Rules, Budgets) {
        let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
        set(&mut budgets.per_second, self.per_second);
        set(&mut budgets.cpu_pct, self.max_collapse_cpu);
        set(&mut budgets.stall_pct, self.max_stall);
        set(&mut budgets.growth_pct, self.max_growth);
        set(&mut budgets.headroom_pct, self.headroom);
        set(&mut budgets.pressure_pct, self.max_pressure);
        set(&mut budgets.cgroup_margin_pct, self.cgroup_margin);
        set(&mut rules.min_benefit_hz, self.min_benefit);
        budgets.free_blocks = self.free_blocks.unwrap_or(budgets.free_blocks);
        if let Some(percent) = self.min_present {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 512")]
            let pages = (percent / 100.0 * PAGES_PER_PMD as f64).floor().clamp(0.0, PAGES_PER_PMD as f64) as u16;
            budgets.min_present = pages;
        }
        rules.min_present = budgets.min_present;
        rules.files |= self.files;
        (rules, budgets)
    }
}
