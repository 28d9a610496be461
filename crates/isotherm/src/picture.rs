//! Heat maps, written to a picture file or drawn in the terminal. The name of the file selects its kind.

use crate::args::color::ColorArgs;
use crate::args::usage::Usage;
use crate::output;
use anyhow::Result;
use isotherm_heat::{Snapshot, TargetId};
use isotherm_view::heatmap::{self, HeatMap, HtmlOptions, PngOptions, Scale, Select, TerminalStyle};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A picture file to be written.
#[derive(Debug)]
pub struct Picture {
    kind: Kind,
    path: PathBuf,
}

/// What a picture file holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Png,
    Html,
}

impl Picture {
    /// Takes the kind from the extension of `path`.
    pub fn named(path: PathBuf) -> Result<Picture, Usage> {
        let kind = match path.extension().and_then(|e| e.to_str()) {
            Some("png") => Kind::Png,
            Some("html" | "htm") => Kind::Html,
            _ => return Err(Usage(format!("{}: a picture's name has to end in .png or .html", path.display()))),
        };
        Ok(Picture { kind, path })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the heat map. A PNG shows one target, an HTML file that one or, if none is given, the largest.
    pub fn write(&self, snapshots: &[Snapshot], target: Option<TargetId>, scale: Scale) -> Result<()> {
        let select = Select { target, columns: 160, rows: 90, ..Select::default() };
        let png = PngOptions { scale, ..PngOptions::default() };
        let mut html = HtmlOptions { scale, ..HtmlOptions::default() };
        html.select.target = target;
        output::file(&self.path, |out| match self.kind {
            Kind::Png => heatmap::write_png(&HeatMap::build(snapshots, &select), out, &png),
            Kind::Html => heatmap::write_html(snapshots, out, &html),
        })?;
        output::note(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}

/// Draws a heat map in the terminal.
pub fn draw(
    snapshots: &[Snapshot],
    target: Option<TargetId>,
    (color, scale): (ColorArgs, Scale),
    out: &mut dyn Write,
) -> Result<()> {
    let style = TerminalStyle { scale, ..output::terminal_style(color) };
    let (columns, rows) = heatmap::terminal_grid(&style, output::height());
    let map = HeatMap::build(snapshots, &Select { target, columns, rows, ..Select::default() });
    heatmap::write_terminal(&map, out, &style)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_unknown_kind_is_wrong_usage() {
        for name in ["heat.gif", "heat", "png"] {
            let Usage(error) = Picture::named(name.into()).unwrap_err();
            assert!(error.contains(name) && error.contains(".png or .html"), "{error}");
        }
        assert!(matches!(Picture::named("heat.htm".into()), Ok(Picture { kind: Kind::Html, .. })));
    }
}
