//! What a picture was like, and the table that compares ours with those of the peers.

use crate::{Log, median, spread};
use isotherm_heat::Score;

/// What the first pictures of a process were like.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// Since when they were good, in seconds from the start; `None` if they were not at the end.
    pub good_s: Option<f64>,
    /// How long that was waited for, in seconds.
    pub limit_s: f64,
    /// CPU time until then, or until the end, in ms. Opening is in it, scoring is not.
    pub cpu_ms: f64,
    /// CPU time for each second of the whole time, in ms.
    pub cpu_ms_a_second: f64,
    /// The last one.
    pub last: Score,
}

impl Picture {
    /// Seconds until it was good; the limit if it never was.
    pub fn good_s_or_limit(&self) -> f64 {
        self.good_s.unwrap_or(self.limit_s)
    }

    /// When it was good and the CPU time, in words.
    pub fn text(&self) -> String {
        let good = match self.good_s {
            Some(s) => format!("good after {s:.2} s"),
            None => format!("not good in {:.0} s", self.limit_s),
        };
        let Picture { cpu_ms, cpu_ms_a_second, last, .. } = self;
        let (precision, recall) = (last.precision(), last.recall());
        format!(
            "{good}, {cpu_ms:.0} ms of CPU, {cpu_ms_a_second:.0} a second; at the end precision {precision:.2}, recall {recall:.2}"
        )
    }
}

/// Pictures of all trials, by case and monitor, in the order in which they were added first.
#[derive(Debug, Default)]
pub struct Comparison(Vec<Compared>);

#[derive(Debug)]
struct Compared {
    case: &'static str,
    monitor: &'static str,
    pictures: Vec<Picture>,
}

impl Comparison {
    /// Adds what a monitor has made of a case.
    pub fn add(&mut self, case: &'static str, monitor: &'static str, picture: Picture) {
        match self.0.iter_mut().find(|of| (of.case, of.monitor) == (case, monitor)) {
            Some(of) => of.pictures.push(picture),
            None => self.0.push(Compared { case, monitor, pictures: vec![picture] }),
        }
    }

    /// Prints a row for each case and monitor, of medians.
    pub fn log(&self, log: &mut Log) {
        if self.0.is_empty() {
            return;
        }
        log.line(format!(
            "\n{:<22} {:<28} {:>26} {:>26} {:>9} {:>10} {:>7}",
            "", "", "good after s", "CPU until then ms", "ms / s", "precision", "recall"
        ));
        self.0.iter().for_each(|of| log.line(row(of.case, of.monitor, &of.pictures)));
    }
}

fn row(case: &str, monitor: &str, pictures: &[Picture]) -> String {
    let of = |what: fn(&Picture) -> f64| pictures.iter().map(what).collect::<Vec<f64>>();
    let good = match pictures.iter().filter(|picture| picture.good_s.is_none()).count() {
        0 => spread(&of(Picture::good_s_or_limit)),
        never if never == pictures.len() => format!("not good in {:.0} s", pictures[0].limit_s),
        never => format!("{:.2}, {never} not in {:.0}", median(&of(Picture::good_s_or_limit)), pictures[0].limit_s),
    };
    format!(
        "{case:<22} {monitor:<28} {good:>26} {:>26} {:>9.1} {:>10.4} {:>7.4}",
        spread(&of(|p| p.cpu_ms)),
        median(&of(|p| p.cpu_ms_a_second)),
        median(&of(|p| p.last.precision())),
        median(&of(|p| p.last.recall()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(good_s: Option<f64>) -> Picture {
        Picture { good_s, limit_s: 30.0, cpu_ms: 100.0, cpu_ms_a_second: 10.0, last: Score::of(1.0) }
    }

    #[test]
    fn what_was_never_good_is_said_so_and_counts_as_the_limit() {
        let rows =
            |good: &[Option<f64>]| row("one span", "peer", &good.iter().map(|s| picture(*s)).collect::<Vec<_>>());
        assert!(rows(&[Some(1.0), Some(3.0), Some(2.0)]).contains("2.00 (1.00 to 3.00)"));
        assert!(rows(&[None, None]).contains("not good in 30 s"));
        assert!(rows(&[Some(2.0), None, None]).contains("30.00, 2 not in 30"));
        assert_eq!(picture(None).good_s_or_limit(), 30.0);
        assert!(picture(None).text().starts_with("not good in 30 s, 100 ms of CPU, 10 a second"));
    }
}
