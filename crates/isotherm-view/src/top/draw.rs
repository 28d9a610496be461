//! Draws the live view on a frame of any size.
//!
//! `crate::text` lays out the lists, as in the reports, so columns are dropped in the same order. If there is room, a
//! coloured bar shows the classes of each row. If the frame is too small, the footer is dropped first, then the header.
//! The list stays longest.

use super::keys::KEYS;
use super::state::{TopState, View};
use crate::heatmap::{
    Arrangement, Axis, Cell, HeatMap, Line as MapLine, Rgb, Scale, Select, UNMEASURED_COLOR, heat_color, lines,
};
use crate::human::{self, Keep, fit};
use crate::math;
use crate::tables::{CGROUP_MEMORY, Caveats, CostSummary, HeatSum, LastColumns, class_table, total_of};
use crate::text::{Column, Table, TextStyle};
use isotherm_heat::{Snapshot, TargetId};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use std::sync::Arc;

const GUTTER: usize = 15;

/// Draws the whole view.
pub fn draw(frame: &mut Frame, state: &TopState) {
    let area = frame.area();
    let header = header_lines(state, usize::from(area.width));
    let header_rows = if area.height >= 5 { u16::try_from(header.len()).unwrap_or(0) } else { 0 };
    let footer_rows = u16::from(area.height >= 4);
    let [top, body, bottom] = split(area, header_rows.min(area.height / 2), footer_rows);
    frame.render_widget(Paragraph::new(header), top);
    match state.view {
        _ if state.shown.is_none() => frame.render_widget(Paragraph::new("waiting for the first window"), body),
        View::Processes => draw_list(frame, body, state, &process_table(state), &process_sums(state)),
        View::Cgroups => draw_list(frame, body, state, &cgroup_table(state), &cgroup_sums(state)),
        View::Map(id) => draw_maps(frame, body, state, id),
    }
    frame.render_widget(Paragraph::new(footer_line(state, usize::from(area.width))), bottom);
    if state.help {
        draw_help(frame, body);
    }
}

fn split(area: Rect, top: u16, bottom: u16) -> [Rect; 3] {
    let body = area.height.saturating_sub(top + bottom);
    let at = |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
    [at(0, top), at(top, body), at(top + body, bottom)]
}

fn header_lines(state: &TopState, width: usize) -> Vec<Line<'static>> {
    let cost = state.shown.as_ref().map(|s| CostSummary::of(&s.cost)).unwrap_or_default();
    let mut facts = vec![
        format!("isotherm {}", human::printable(&state.run.source)),
        format!("window {}", human::duration(state.run.window_ns)),
    ];
    facts.extend(cost.monitor_cpu_pct.map(|cpu| format!("monitor {}%", human::percent(cpu))));
    facts.extend(cost.slowdown_pct.map(|slowdown| format!("slow-down ~{}%", human::percent(slowdown))));
    if let Some(snapshot) = &state.shown {
        facts.push(format!("{} UTC", human::clock(snapshot.end_unix_ns)));
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(join_fitting(&facts, width), bold)];
    let mut second = vec![what_is_shown(state)];
    if state.paused {
        second.push("PAUSED".to_owned());
    }
    if state.ended {
        second.push("source has ended".to_owned());
    }
    second.extend(cost.warning());
    second.extend(state.shown.iter().flat_map(|s| Caveats::of(std::slice::from_ref(&**s)).lines()));
    second.extend(estimates(state));
    let style = if cost.read_errors > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };
    lines.push(Line::styled(fit(&second.join(" | "), width, Keep::Start, '…'), style));
    lines
}

/// What in the rows is not by the accessed bit of each page. Memory that was not checked yet counts like checked memory around it. A huge page counts
/// as a whole; where its pages were known before it was made: how much is hot if they count as they did.
fn estimates(state: &TopState) -> Vec<String> {
    let all = match state.view {
        View::Processes => total_of(state.processes.iter().map(|(_, p)| p)),
        // What lies below a cgroup has rows of its own.
        View::Cgroups => state.cgroups.iter().fold(HeatSum::default(), |mut all, c| {
            all.add(&c.own);
            all
        }),
        View::Map(_) => return Vec::new(),
    };
    let (is_unchecked, is_behind_huge) = (all.estimated_bytes.0 > 0, all.behind_huge_bytes.0 > 0);
    let unchecked = is_unchecked.then(|| format!("{} not checked yet and estimated", all.estimated_bytes));
    let behind_huge =
        is_behind_huge.then(|| format!("hot {} by bits, {} by estimate", all.hot_bytes, all.hot_by_estimate_bytes));
    unchecked.into_iter().chain(behind_huge).collect()
}

/// Joins as many of the facts, from the first on, as fit completely.
fn join_fitting(facts: &[String], width: usize) -> String {
    let joined = (1..=facts.len()).rev().map(|n| facts[..n].join(" | ")).find(|text| text.len() <= width);
    joined.unwrap_or_else(|| fit(&facts[0], width, Keep::Start, '…'))
}

fn what_is_shown(state: &TopState) -> String {
    let mut text = match state.view {
        View::Processes => format!("{} processes by {}", state.processes.len(), state.sort.label()),
        View::Cgroups => format!("{} cgroups by hot", state.cgroups.len()),
        View::Map(_) => format!("heat map, {}", state.options.scale.title()),
    };
    if let (View::Processes, Some(path)) = (state.view, &state.within) {
        let path = if path.is_empty() { "no cgroup".to_owned() } else { human::printable(path) };
        text += &format!(" in {path}");
    }
    if !state.filter.is_empty() && !state.typing {
        text += &format!(", filter {}", human::printable(&state.filter));
    }
    text
}

fn footer_line(state: &TopState, width: usize) -> Line<'static> {
    if state.typing {
        return Line::raw(fit(&format!("/{}_", human::printable(&state.filter)), width, Keep::End, '…'));
    }
    let hints = match state.view {
        View::Map(_) => ["Esc back", "j/k process", "c colours", "p pause", "? help", "q quit"].as_slice(),
        _ => ["? help", "q quit", "Enter open", "Tab view", "s sort", "/ filter", "p pause"].as_slice(),
    };
    let hints: Vec<String> = hints.iter().map(|h| (*h).to_owned()).collect();
    Line::styled(join_fitting(&hints, width).replace(" | ", "  "), Style::new().add_modifier(Modifier::DIM))
}

fn process_table(state: &TopState) -> Table {
    let last = LastColumns::of(state.processes.iter().map(|(_, p)| p)).of_actions();
    let mut table =
        class_table(&[Column::number("PID", 1), Column::name("COMMAND", Keep::Start, 12, 0)], &last.columns());
    for (_, p) in &state.processes {
        table.row([vec![p.pid.to_string(), p.label()], p.heat.cells(""), last.cells(p)].concat());
    }
    table
}

fn cgroup_table(state: &TopState) -> Table {
    let is_known = state.cgroups.iter().any(|c| c.cgroup_memory.is_some());
    let held = if is_known { CGROUP_MEMORY.as_slice() } else { &[] };
    let mut table = class_table(&[Column::name("CGROUP", Keep::Start, 20, 0)], held);
    for c in &state.cgroups {
        let memory = if is_known { c.memory_cells() } else { Vec::new() };
        let mark = if c.total.is_approximate() { "~" } else { "" };
        table.row([vec![c.label()], c.total.cells(mark), memory].concat());
    }
    table
}

fn process_sums(state: &TopState) -> Vec<HeatSum> {
    state.processes.iter().map(|(_, p)| p.heat).collect()
}

fn cgroup_sums(state: &TopState) -> Vec<HeatSum> {
    state.cgroups.iter().map(|c| c.total).collect()
}

fn draw_list(frame: &mut Frame, area: Rect, state: &TopState, table: &Table, sums: &[HeatSum]) {
    let width = usize::from(area.width);
    let text = table.lines(TextStyle { width, ascii: false });
    let used = text.iter().map(|l| Line::raw(l.as_str()).width()).max().unwrap_or(0);
    let bar = Some(width.saturating_sub(used + 2)).filter(|room| *room >= 8).map(|room| room.min(60));
    let most = sums.iter().map(|s| s.resident_bytes.0).max().unwrap_or(0);
    let (head, rows) = text.split_first().map_or((String::new(), [].as_slice()), |(h, r)| (h.clone(), r));
    let room = usize::from(area.height).saturating_sub(1);
    let selected = state.selected().unwrap_or(0);
    let first = (selected + 1).saturating_sub(room.max(1));
    let mut drawn = vec![Line::styled(head, Style::new().add_modifier(Modifier::BOLD))];
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        let style = if at == selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let padding = used.saturating_sub(Line::raw(row.as_str()).width());
        let mut spans = vec![Span::styled(format!("{row}{}", " ".repeat(padding)), style)];
        if let (Some(bar), Some(sum)) = (bar, sums.get(at)) {
            spans.push(Span::raw("  "));
            spans.extend(class_bar(sum, most, bar));
        }
        drawn.push(Line::from(spans));
    }
    if rows.is_empty() {
        drawn.push(Line::raw(fit("nothing matches", width, Keep::Start, '…')));
    }
    frame.render_widget(Paragraph::new(drawn), area);
}

/// Hot to idle, then unknown, with a length that is comparable between rows.
fn class_bar(sum: &HeatSum, most: u64, width: usize) -> Vec<Span<'static>> {
    let parts = [
        (sum.hot_bytes, heat_color(1.0)),
        (sum.warm_bytes, heat_color(0.65)),
        (sum.cold_bytes, heat_color(0.35)),
        (sum.idle_bytes, heat_color(0.0)),
        (sum.unmeasured_bytes, UNMEASURED_COLOR),
    ];
    let (mut before, mut drawn) = (0, 0);
    let span = |(bytes, rgb): (isotherm_units::Bytes, Rgb)| {
        before += bytes.0;
        let until = math::floor(math::share(before, most) * width as f64 + 0.5);
        let count = until - std::mem::replace(&mut drawn, until);
        Span::styled("█".repeat(count), Style::new().fg(color(rgb)))
    };
    parts.into_iter().map(span).collect()
}

fn color(rgb: Rgb) -> Color {
    Color::Rgb(rgb.0, rgb.1, rgb.2)
}

/// The current address space at the top and its history below: one half each, if there is room for both.
fn draw_maps(frame: &mut Frame, area: Rect, state: &TopState, id: TargetId) {
    let shown_at = state.shown.as_ref().map_or(0, |s| s.end_unix_ns);
    let snapshots: Vec<Arc<Snapshot>> = state.history.iter().filter(|s| s.end_unix_ns <= shown_at).cloned().collect();
    let latest: Vec<Arc<Snapshot>> = state.shown.iter().cloned().collect();
    let legend_rows = u16::from(area.height >= 6);
    let room = area.height.saturating_sub(legend_rows);
    let upper = if room >= 10 { room / 2 } else { 0 };
    let part = |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
    if upper > 0 {
        draw_map(frame, part(0, upper), state, &latest, (id, Arrangement::Strip));
    }
    draw_map(frame, part(upper, room - upper), state, &snapshots, (id, Arrangement::Time));
    frame.render_widget(Paragraph::new(legend(state, usize::from(area.width))), part(room, legend_rows));
}

fn draw_map(
    frame: &mut Frame,
    area: Rect,
    state: &TopState,
    snapshots: &[Arc<Snapshot>],
    (id, arrangement): (TargetId, Arrangement),
) {
    let width = usize::from(area.width);
    let gutter = if width >= 48 { GUTTER } else { 0 };
    let names = if width >= 64 { (width / 4).min(36) } else { 0 };
    let height = usize::from(area.height).saturating_sub(1);
    let select =
        Select { target: Some(id), columns: (width - gutter - names).max(1), arrangement, ..Select::default() };
    let (map, lines) = map_to_fit(snapshots, select, height);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut drawn = vec![Line::styled(fit(&map_title(&map), width, Keep::Start, '…'), bold)];
    if map.is_empty() {
        drawn.push(Line::raw(fit("it has no memory here", width, Keep::Start, '…')));
    }
    drawn.extend(lines.into_iter().take(height).map(|line| map_line(&map, line, state, (gutter, names))));
    frame.render_widget(Paragraph::new(drawn), area);
}

/// Builds a map that fits into `height` lines. A break takes a whole line and a row takes half a line, so the number of
/// rows is found by trial.
fn map_to_fit(snapshots: &[Arc<Snapshot>], mut select: Select, height: usize) -> (HeatMap, Vec<MapLine>) {
    select.rows = height * 2;
    loop {
        let map = HeatMap::build(snapshots, &select);
        let lines = lines(&map, true);
        let over = lines.len().saturating_sub(height);
        if over == 0 || select.rows <= 1 {
            return (map, lines);
        }
        select.rows = select.rows.saturating_sub(over).max(1);
    }
}

fn map_title(map: &HeatMap) -> String {
    let note = if map.has_estimates() { Scale::note_of_estimates(false) } else { "" };
    match map.axis {
        Axis::Strip { .. } => format!("{} now, by address{note}", map.title()),
        Axis::Time { start_unix_ns, end_unix_ns } => {
            format!("{} over the last {}{note}", map.title(), human::duration(end_unix_ns - start_unix_ns))
        }
    }
}

fn map_line(map: &HeatMap, line: MapLine, state: &TopState, (gutter, names): (usize, usize)) -> Line<'static> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let (row, lower) = match line {
        MapLine::Break(row) => {
            let label = format!("{:gutter$}╌╌ {} ╌╌", "", map.row_label(row));
            return Line::styled(label, dim);
        }
        MapLine::Cells(row, lower) => (row, lower),
    };
    let mut spans = Vec::with_capacity(map.columns + 2);
    if gutter > 0 {
        spans.push(Span::styled(format!("{:>14x} ", map.rows[row].range.start.0), dim));
    }
    for (column, cell) in map.cells(row).iter().enumerate() {
        spans.push(cell_span(*cell, lower.map_or(Cell::Absent, |r| map.cells(r)[column]), state));
    }
    let own = map.row_label(row);
    let label = if own.is_empty() { lower.map_or(own, |r| map.row_label(r)) } else { own };
    if names > 1 {
        spans.push(Span::raw(format!(" {}", fit(&label, names - 1, Keep::End, '…'))));
    }
    Line::from(spans)
}

fn cell_span(upper: Cell, lower: Cell, state: &TopState) -> Span<'static> {
    let scale = &state.options.scale;
    match (scale.color(upper), scale.color(lower)) {
        (None, None) => Span::raw(" "),
        (Some(up), None) => Span::styled("▀", Style::new().fg(color(up))),
        (Some(up), Some(down)) => Span::styled("▀", Style::new().fg(color(up)).bg(color(down))),
        (None, Some(down)) => Span::styled("▄", Style::new().fg(color(down))),
    }
}

fn legend(state: &TopState, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    let scale = state.options.scale;
    for tick in scale.legend(6) {
        used += tick.label.len() + 5;
        if used > width + 2 {
            break;
        }
        let rgb = scale.color_of(tick.step).unwrap_or(UNMEASURED_COLOR);
        spans.push(Span::styled("██", Style::new().fg(color(rgb))));
        spans.push(Span::raw(format!(" {}  ", tick.label)));
    }
    Line::from(spans)
}

fn draw_help(frame: &mut Frame, area: Rect) {
    let width = usize::from(area.width);
    let line = |label: &str, help: &str| Line::raw(fit(&format!(" {label:<10} {help}"), width, Keep::Start, '…'));
    let lines: Vec<Line> = KEYS.iter().map(|row| line(row.label, row.help)).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::state::TopOptions;
    use super::*;
    use crate::heatmap::Scale;
    use crate::sample::{run_info, series};
    use isotherm_heat::{Acted, Histogram, Interval, PagesBehindHuge};
    use isotherm_units::Bytes;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn state() -> TopState {
        let mut state = TopState::new(run_info(), TopOptions::default());
        series(40).into_iter().take(25).for_each(|s| state.update(Arc::new(s)));
        state
    }

    fn screen(state: &TopState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn processes_cgroups_map_and_help_at_three_sizes() {
        for (width, height) in [(80, 24), (200, 50), (20, 5)] {
            let mut state = state();
            let check = |state: &TopState, name: &str| {
                insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen(state, width, height));
            };
            check(&state, "processes");
            state.on_key(Key::Tab);
            check(&state, "cgroups");
            state.on_key(Key::Tab);
            state.on_key(Key::Enter);
            check(&state, "map");
            state.on_key(Key::Char('?'));
            check(&state, "help");
        }
    }

    #[test]
    fn what_was_paged_out_is_shown_where_there_is_any() {
        let mut shown = series(1).remove(0);
        let mut state = TopState::new(run_info(), TopOptions::default());
        state.update(Arc::new(shown.clone()));
        assert!(!screen(&state, 120, 10).contains("CAME BACK"));
        let acted = Acted { left_bytes: Bytes(7 << 20), out_bytes: Bytes(5 << 20), ..Acted::default() };
        shown.targets[0].facts.acted = Some(acted);
        state.update(Arc::new(shown));
        let text = screen(&state, 120, 10);
        assert!(text.contains("CAME BACK") && text.contains("5.0 MiB"), "{text}");
    }

    /// With `change`, both lists show `text`. Without it the first shows nothing of `word`.
    fn lists_show(change: impl FnOnce(&mut Snapshot), word: &str, text: &str) {
        let mut shown = series(1).remove(0);
        let mut state = TopState::new(run_info(), TopOptions::default());
        state.update(Arc::new(shown.clone()));
        assert!(!screen(&state, 160, 10).contains(word));
        change(&mut shown);
        state.update(Arc::new(shown));
        for _ in [View::Processes, View::Cgroups] {
            let screen = screen(&state, 160, 10);
            assert!(screen.contains(text), "{screen}");
            state.on_key(Key::Tab);
        }
    }

    #[test]
    fn what_is_hot_by_estimate_is_shown_where_huge_pages_were_made() {
        let mut temperature = Histogram::default();
        temperature.add(Interval::HOT, 256);
        temperature.add(Interval::UNMEASURED, 512);
        let collapse = |shown: &mut Snapshot| {
            shown.targets.truncate(1);
            shown.targets[0].behind_huge = Some(PagesBehindHuge { temperature, pages: 512, age_ns: 1 });
        };
        lists_show(collapse, "by estimate", "by bits, 1.0 MiB by estimate");
    }

    #[test]
    fn what_is_not_checked_yet_is_shown() {
        let estimate = |shown: &mut Snapshot| shown.targets[0].regions[0].estimated_pages = 512;
        lists_show(estimate, "estimated", "2.0 MiB not checked yet and estimated");
    }

    #[test]
    fn a_key_changes_what_the_colours_of_a_map_show() {
        let mut state = state();
        state.on_key(Key::Enter);
        for expected in Scale::ALL.into_iter().chain([Scale::Share]) {
            let text = screen(&state, 120, 24);
            assert!(text.contains(&expected.title()), "{text}");
            assert!(text.contains(&expected.legend(6)[0].label), "{text}");
            state.on_key(Key::Char('c'));
        }
    }

    #[test]
    fn no_size_panics_in_any_view() {
        for (width, height) in [(1, 1), (2, 3), (1, 50), (300, 1), (47, 9), (64, 12)] {
            let mut state = TopState::new(run_info(), TopOptions::default());
            screen(&state, width, height);
            series(3).into_iter().for_each(|s| state.update(Arc::new(s)));
            for key in
                [Key::Tab, Key::Tab, Key::Enter, Key::Char('?'), Key::Esc, Key::Esc, Key::Char('/'), Key::Char('z')]
            {
                state.on_key(key);
                screen(&state, width, height);
            }
        }
    }

    #[test]
    fn a_warning_and_an_end_are_seen() {
        let mut state = state();
        let mut last = series(1).remove(0);
        last.cost.read_errors = 2;
        state.update(Arc::new(last));
        state.source_ended();
        let text = screen(&state, 160, 10);
        assert!(text.contains("source has ended") && text.contains("2 reads of page tables failed"), "{text}");
    }
}
