//! Heat maps: the memory of one target as a grid of colours, over time or as a strip of its address space.
//!
//! [`HeatMap`] is the model: the addresses of each row (`axis`), and what is known of each cell. Three functions draw
//! it: [`write_terminal`], [`write_png`] and [`write_html`]. They share [`Scale`], so that a picture in a report can be
//! compared with the live view.
//!
//! A [`Cell`] has three figures: the share of it that is hot, its mean access interval, and how long it has been idle.
//! A scale shows one of them. The default is the share, because a mean hides a little hot memory among much that is
//! cold, and because it rests on counted accesses: the interval of memory that was never seen accessed is a guess. A
//! cell without memory is absent, and one of which most is not measured is unmeasured. Neither is ever drawn in a
//! colour of the scale.

mod axis;
mod color;
mod font;
mod html;
mod model;
mod png;
mod scale;
mod terminal;

pub use color::{Rgb, UNMEASURED_COLOR, heat_color};
pub use html::{HtmlOptions, write_html};
pub use model::{Arrangement, Axis, Cell, CellHeat, HeatMap, Row, Select};
pub use png::{PngOptions, write_png};
pub use scale::Scale;
pub(crate) use terminal::escape;
pub use terminal::{ColorMode, Line, TerminalStyle, lines, terminal_grid, write_terminal};
