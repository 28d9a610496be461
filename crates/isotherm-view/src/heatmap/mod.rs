//! Heat maps: the memory of one target as a grid of colours, over time or as a strip of its address space.
//!
//! [`HeatMap`] is the model: the addresses of each row (`axis`), and the mean heat of each cell. Three functions draw
//! it: [`write_terminal`], [`write_png`] and [`write_html`]. They share the colours of [`Scale`], so that a picture in
//! a report can be compared with the live view.
//!
//! A cell is an [`Interval`](isotherm_heat::Interval): the mean on the log scale, weighted by resident pages. `ABSENT`
//! is a cell without memory, and `UNMEASURED` is one whose heat is unknown. Neither is ever drawn in a colour of the
//! scale.

mod axis;
mod color;
mod font;
mod html;
mod model;
mod png;
mod terminal;

pub use color::{Rgb, Scale, UNMEASURED_COLOR, heat_color};
pub use html::{HtmlOptions, write_html};
pub use model::{Arrangement, Axis, HeatMap, Row, Select};
pub use png::{PngOptions, write_png};
pub(crate) use terminal::escape;
pub use terminal::{ColorMode, Line, TerminalStyle, lines, terminal_grid, write_terminal};
