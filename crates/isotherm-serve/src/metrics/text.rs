//! The text of a scrape, in the format of Prometheus (0.0.4) or OpenMetrics (1.0). They differ in the heads of families, in
//! the name of a gauge histogram, and in the last line.

use super::table::{Kind, Metric};
use std::fmt::{Display, Write as _};

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Its media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The one that a client prefers by its `Accept` header.
    pub fn accepted(accept: &str) -> Format {
        let quality = |wanted: &str| {
            let kinds = accept.split(',').filter_map(|kind| {
                let mut parts = kind.split(';').map(str::trim);
                let is_it = parts.next() == Some(wanted);
                let version = parts.clone().find_map(|part| part.strip_prefix("version="));
                // The first OpenMetrics had another form of exemplars, which there are none of; 2.0 may differ in anything.
                let is_read = version.is_none_or(|version| !version.starts_with('2'));
                let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f64);
                (is_it && is_read).then_some(quality)
            });
            kinds.fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Prometheus }
    }
}

/// A text as it is written.
#[derive(Debug)]
pub struct Text {
    out: String,
    format: Format,
}

impl Text {
    /// An empty text.
    pub fn new(format: Format) -> Text {
        Text { out: String::new(), format }
    }

    /// The head of a family. Its samples follow.
    pub fn family<'a>(&'a mut self, metric: &'a Metric) -> Family<'a> {
        let is_open = self.format == Format::OpenMetrics;
        let name = if is_open { metric.name.to_owned() } else { metric.sample_name() };
        let kind = match (metric.kind, self.format) {
            (Kind::Gauge, _) => "gauge",
            (Kind::Counter, _) => "counter",
            (Kind::Histogram, Format::Prometheus) => "histogram",
            (Kind::Histogram, Format::OpenMetrics) => "gaugehistogram",
        };
        let _ = writeln!(self.out, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
        if is_open && !metric.unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {}", metric.unit);
        }
        let suffix = if metric.kind == Kind::Counter { "_total" } else { "" };
        Family { out: &mut self.out, metric, suffix, is_open }
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// The samples of a metric.
#[derive(Debug)]
pub struct Family<'a> {
    out: &'a mut String,
    metric: &'a Metric,
    suffix: &'static str,
    is_open: bool,
}

impl Family<'_> {
    /// A sample. `labels` come from `label`; `further` are names and values without characters to escape.
    pub fn sample(&mut self, labels: &str, further: &[(&str, &str)], value: impl Display) {
        let suffix = self.suffix;
        self.write(suffix, labels, further, value);
    }

    /// Buckets of a histogram, with upper bounds for all but the last, and the sum of what was observed.
    pub fn buckets(&mut self, labels: &str, bounds: &[u64], counts: &[u64], sum: f64) {
        let mut total = 0_u64;
        for (place, count) in counts.iter().enumerate() {
            total = total.saturating_add(*count);
            // OpenMetrics writes numbers of bounds as floats.
            let bound = bounds.get(place).map_or("+Inf".to_owned(), |bound| format!("{bound}.0"));
            self.write("_bucket", labels, &[("le", &bound)], total);
        }
        let names = if self.is_open { ["_gsum", "_gcount"] } else { ["_sum", "_count"] };
        self.write(names[0], labels, &[], sum);
        self.write(names[1], labels, &[], total);
    }

    fn write(&mut self, suffix: &str, labels: &str, further: &[(&str, &str)], value: impl Display) {
        self.out.push_str(self.metric.name);
        self.out.push_str(suffix);
        if !(labels.is_empty() && further.is_empty()) {
            self.out.push('{');
            self.out.push_str(labels);
            for (place, (name, value)) in further.iter().enumerate() {
                let comma = if place > 0 || !labels.is_empty() { "," } else { "" };
                let _ = write!(self.out, "{comma}{name}=\"{value}\"");
            }
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// Labels as they are in a sample: values that come from outside are escaped. Those with an empty value are omitted, which means the
/// same.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(name);
        out.push_str("=\"");
        for char in value.chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                char => out.push(char),
            }
        }
        out.push('"');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::table::{IDLE_AGE, READ_ERRORS};
    use super::*;

    #[test]
    fn label_values_are_escaped_and_empty_ones_omitted() {
        let text = labels(&[("a", "x\"y\\z\n"), ("b", ""), ("c", "ä")]);
        assert_eq!(text, "a=\"x\\\"y\\\\z\\n\",c=\"ä\"");
    }

    #[test]
    fn the_two_formats_differ_where_they_have_to() {
        let text = |format| {
            let mut text = Text::new(format);
            text.family(&READ_ERRORS).sample("", &[], 7);
            text.family(&IDLE_AGE).buckets("x=\"y\"", &[1], &[5, 6], 0.5);
            text.finish()
        };
        let (old, new) = (text(Format::Prometheus), text(Format::OpenMetrics));
        assert!(old.contains("# TYPE isotherm_read_errors_total counter\nisotherm_read_errors_total 7\n"), "{old}");
        assert!(new.contains("# TYPE isotherm_read_errors counter\nisotherm_read_errors_total 7\n"), "{new}");
        let buckets = "_bucket{x=\"y\",le=\"1.0\"} 5\nisotherm_idle_age_seconds_bucket{x=\"y\",le=\"+Inf\"} 11\n";
        assert!(
            old.contains(buckets) && old.contains("_sum{x=\"y\"} 0.5\nisotherm_idle_age_seconds_count{x=\"y\"} 11")
        );
        assert!(new.contains(buckets) && new.contains("seconds gaugehistogram") && new.contains("_gcount{x=\"y\"} 11"));
        assert!(new.contains("# UNIT isotherm_idle_age_seconds seconds\n") && new.ends_with("# EOF\n"));
        assert!(!old.contains("UNIT") && !old.contains("EOF"));
    }

    #[test]
    fn the_preferred_format_is_chosen() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/html, */*;q=0.8", "text/plain;q=0.9, application/openmetrics-text;q=0.1"] {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
