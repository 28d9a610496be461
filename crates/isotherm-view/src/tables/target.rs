//! The parts of a target that all reports write in the same way.

use crate::human;
use isotherm_heat::TargetHeat;

/// `812 postgres`, marked if the process has ended. Printable.
pub(super) fn title(pid: Option<u32>, comm: &str, exited: bool) -> String {
    let name = match pid {
        Some(pid) => format!("{pid} {}", human::printable(comm)),
        None => "all targets".to_owned(),
    };
    if exited { name + " (exited)" } else { name }
}

/// Whether a sum over this target may count pages that another target counts too.
pub(super) fn is_approximate(target: &TargetHeat) -> bool {
    target.maybe_shared_pages > 0
}

/// Whether a plain sum over targets with this one counts pages several times, or may.
pub(super) fn may_be_shared(target: &TargetHeat) -> bool {
    target.counted_elsewhere_pages > 0 || is_approximate(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_printable_and_says_what_has_ended() {
        assert_eq!(title(Some(7), "a\x1b[2J", true), "7 a\u{fffd}[2J (exited)");
        assert_eq!(title(None, "", false), "all targets");
    }
}
