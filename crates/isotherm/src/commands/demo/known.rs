//! The plain workload: one thread, and pages that are hot or never accessed at all.

use super::{DemoArgs, Found, HOT_NS, Seen, Truth, USUAL, size_of_workload, start_child};
use crate::output;
use anyhow::Result;
use isotherm_sys::random;
use isotherm_units::Bytes;
use isotherm_workload::{Child, Layout, Pattern};

/// A pattern that is being accessed.
pub(super) struct Known {
    pattern: Pattern,
    child: Child,
}

impl Known {
    pub(super) fn start(args: &DemoArgs) -> Result<Known> {
        let pages = usize::try_from(Bytes(size_of_workload(args, USUAL, 0.0)?).pages())?;
        let pattern = Pattern {
            pages,
            hot_pages: pages / 10,
            layout: Layout::Mixed,
            interval_ns: 0,
            huge: args.huge,
            shared: None,
            faults: false,
            seed: random::seed(),
        };
        output::note(format_args!(
            "starting a workload of {} with {} hot, in one span, in spans, and page by page",
            Bytes::of_pages(pattern.pages as u64),
            Bytes::of_pages(pattern.hot_pages as u64)
        ));
        let child = start_child(pattern.pages, |command| Child::start(command, &pattern))?;
        Ok(Known { pattern, child })
    }
}

impl Truth for Known {
    fn child(&self) -> &Child {
        &self.child
    }

    fn found(&self, seen: &Seen<'_>) -> Found {
        let score = match seen.pages {
            Some(pages) => self.pattern.score_pages(self.child.memory(), pages, seen.now, HOT_NS),
            None => self.pattern.score_amount(seen.hot_amount),
        };
        Found {
            score,
            size_error_pct: score.size_error_pct(),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of pages")]
            reported_hot_pages: score.said_hot_pages() as u64,
            hot_pages: self.pattern.hot().iter().filter(|h| **h).count() as u64,
            near_pages: None,
            unmeasured_pages: score.unmeasured_pages,
        }
    }

    fn threads(&self) -> Option<usize> {
        None
    }
}
