//! Messages for users from a source that continues by itself. The monitor asks for them and prints them.

use std::collections::BTreeSet;

/// Messages for users, each once.
#[derive(Debug, Default)]
pub(super) struct News {
    fresh: Vec<String>,
    seen: BTreeSet<String>,
}

impl News {
    pub fn add(&mut self, sentence: String) {
        self.fresh.push(sentence);
    }

    /// For messages that may recur.
    pub fn add_once(&mut self, sentence: String) {
        if self.seen.insert(sentence.clone()) {
            self.fresh.push(sentence);
        }
    }

    /// Takes what is new.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_found_again_and_again_is_told_once() {
        let mut news = News::default();
        for _ in 0..2 {
            news.add("a rate was changed".into());
            news.add_once("a rate could not be changed".into());
        }
        assert_eq!(news.take(), ["a rate was changed", "a rate could not be changed", "a rate was changed"]);
        news.add_once("a rate could not be changed".into());
        assert!(news.take().is_empty());
    }
}
