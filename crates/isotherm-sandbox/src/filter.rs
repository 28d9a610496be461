//! A seccomp filter: system calls that are not on the list fail with EPERM, as if a privilege were missing.
//!
//! Why not kill: a call that was forgotten in the list, or that a later C library makes, must not end a monitor in production. The error
//! is reported like any other.

use crate::calls::{Calls, Rule};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Applies the filter to all threads. Sets `no_new_privs`.
pub fn apply(calls: Calls) -> io::Result<()> {
    for program in [no_clone3(), allow_list(calls)] {
        let program = program.map_err(io::Error::other)?;
        seccompiler::apply_filter_all_threads(&program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other.to_string()),
        })?;
    }
    Ok(())
}

/// Only the calls of the list.
fn allow_list(calls: Calls) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, rule) in calls.rules() {
        rules.insert(call, conditions(rule)?);
    }
    program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// `clone3` has its flags in memory, which a filter cannot read. Without it the C library uses `clone`.
fn no_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, matched, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// An empty list of rules matches every call.
fn conditions(rule: Rule) -> Result<Vec<SeccompRule>, BackendError> {
    let one = |argument, op, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?])
    };
    match rule {
        Rule::Any => Ok(Vec::new()),
        Rule::Itself { argument } => Ok(vec![one(argument, SeccompCmpOp::Eq, u64::from(std::process::id()))?]),
        Rule::OneOf { argument, values } => {
            values.iter().map(|value| one(argument, SeccompCmpOp::Eq, u64::from(*value))).collect()
        }
        Rule::Without { argument, bits } => Ok(vec![one(argument, SeccompCmpOp::MaskedEq(u64::from(bits)), 0)?]),
        Rule::With { argument, bits } => {
            Ok(vec![one(argument, SeccompCmpOp::MaskedEq(u64::from(bits)), u64::from(bits))?])
        }
    }
}
