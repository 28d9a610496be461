//! How a command that acts ends where it was allowed to act on nothing: it fails, since nothing of what was asked for was done.
//!
//! Where some of the processes were skipped, the report says so, and the command has done what it could. So has a dry run, which was to report.

use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// Fails if there are processes and each of them was skipped. `skipped` has one entry for each process, with the reason.
pub fn check<'a>(is_dry: bool, skipped: impl IntoIterator<Item = Option<&'a str>>) -> Result<()> {
    if is_dry {
        return Ok(());
    }
    let Some(reasons) = skipped.into_iter().collect::<Option<Vec<&str>>>() else { return Ok(()) };
    match reasons.as_slice() {
        [] => Ok(()),
        [why] => bail!("nothing was done, the process was skipped: {why}"),
        all => {
            let each: BTreeSet<&str> = all.iter().copied().collect();
            let each = each.into_iter().collect::<Vec<_>>().join("; ");
            bail!("nothing was done, all {} processes were skipped: {each}", all.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_may_act_on_no_process_fails() {
        let error = |skipped: &[Option<&'static str>]| check(false, skipped.iter().copied()).unwrap_err().to_string();
        assert_eq!(error(&[Some("a")]), "nothing was done, the process was skipped: a");
        assert_eq!(error(&[Some("b"), Some("a"), Some("b")]), "nothing was done, all 3 processes were skipped: a; b");
        assert!(check(false, [Some("a"), None]).is_ok() && check(false, [None]).is_ok() && check(false, []).is_ok());
        assert!(check(true, [Some("a")]).is_ok(), "a dry run says what would be done, which is nothing");
    }
}
