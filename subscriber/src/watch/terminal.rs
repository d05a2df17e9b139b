//! In a terminal: the channel on top, instruments below it, the chosen one's depth beside them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::record::InstrumentId;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use subscriber::{BookState, Level};

use super::plain::split_text;
use super::poll::Board;
use super::view::{Depth, MAX_ROWS, Pulse, Row, View, grouped, status_text};
use super::{Arguments, way};

/// The screen is drawn anew at most this often, whatever comes.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Columns that a frame takes.
const FRAME: u16 = 2;
/// Columns of the depth panel at least, frame included: what its last lines need.
const LEAST_DEPTH_WIDTH: u16 = 44;
/// Columns of a label.
const LABEL_WIDTH: usize = 9;

/// Shows views until the polling is over, `stop`, or the user leaves.
///
/// # Errors
/// The terminal's.
pub(crate) fn show(arguments: &Arguments, board: &Board, stop: &AtomicBool) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = run(arguments, board, stop, &mut terminal);
    // The terminal is given back whatever happened; a panic does so too.
    ratatui::restore();
    outcome
}

fn run(arguments: &Arguments, board: &Board, stop: &AtomicBool, terminal: &mut DefaultTerminal) -> io::Result<()> {
    let mut screen =
        Screen { arguments, view: View::default(), selected: InstrumentId::CHANNEL, table: TableState::default() };
    let mut drawn = Instant::now();
    screen.draw(terminal)?;
    // Relaxed: the flags carry nothing but themselves.
    while !board.over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        let mut changed = false;
        let wait = DRAW_EVERY.saturating_sub(drawn.elapsed());
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if leaves(&key) => return Ok(()),
                Event::Key(key) if key.kind != KeyEventKind::Release => changed |= screen.on_key(key.code, board),
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
        if let Some(view) = board.take() {
            screen.view = *view;
            changed = true;
        }
        if changed && drawn.elapsed() >= DRAW_EVERY {
            drawn = Instant::now();
            screen.draw(terminal)?;
        } else if drawn.elapsed() >= DRAW_EVERY {
            // Nothing new: wait a whole interval again.
            drawn = Instant::now();
        }
    }
    Ok(())
}

fn leaves(key: &KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

struct Screen<'a> {
    arguments: &'a Arguments,
    view: View,
    /// The instrument chosen by the user; the channel's own number until somebody chooses.
    selected: InstrumentId,
    table: TableState,
}

impl Screen<'_> {
    /// Moves the choice. Returns whether anything changed.
    fn on_key(&mut self, key: KeyCode, board: &Board) -> bool {
        let Some(last) = self.view.rows.len().checked_sub(1) else { return false };
        let at = self.chosen();
        let to = match key {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp => at.saturating_sub(20),
            KeyCode::PageDown => at + 20,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return false,
        }
        .min(last);
        self.selected = self.view.rows[to].instrument;
        board.selected.store(self.selected.0, Ordering::Relaxed);
        true
    }

    /// The chosen row: it follows its instrument when the order changes.
    fn chosen(&self) -> usize {
        self.view.rows.iter().position(|row| row.instrument == self.selected).unwrap_or(0)
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        terminal.draw(|frame| self.render(frame)).map(|_| ())
    }

    fn render(&mut self, frame: &mut Frame<'_>) {
        let lines = self.channel_lines(frame.area().width.saturating_sub(2));
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(lines.len() as u16 + 2), Constraint::Min(3), Constraint::Length(1)])
                .areas(frame.area());
        let title = format!(" channel '{}' by {} ", self.arguments.channel, way(self.arguments));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(Span::styled(title, bold))), top);

        let (rows, depth) = (self.table_grid(), self.depth_grid());
        let depth_width = (depth.width() + FRAME).max(LEAST_DEPTH_WIDTH);
        if rows.least_width() + FRAME + depth_width <= middle.width {
            let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(depth_width)]).areas(middle);
            self.render_table(frame, left, rows);
            self.render_depth(frame, right, depth);
        } else {
            let below = (self.arguments.depth.saturating_add(5)).min(middle.height / 2);
            let [above, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(middle);
            self.render_table(frame, above, rows);
            self.render_depth(frame, below, depth);
        }
        let help = "  up/down, page up/down, home/end: choose an instrument    q: leave";
        frame.render_widget(Line::styled(help, Style::new().fg(Color::DarkGray)), bottom);
    }

    /// The channel's own lines, none longer than `width` where that can be helped.
    fn channel_lines(&self, width: u16) -> Vec<Line<'static>> {
        let view = &self.view;
        let totals = &view.totals;
        let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
        let (word, colour) = match view.pulse {
            Pulse::Waiting => ("waiting for its publisher".into(), Color::Yellow),
            Pulse::Running if view.session_ended => ("running, the venue's session is over".into(), Color::Green),
            Pulse::Running => ("running".into(), Color::Green),
            Pulse::Silent => (format!("SILENT for {}", seconds(view.silence_ns.unwrap_or(0))), Color::Red),
            Pulse::Ended => ("ended; waiting for its next publisher".into(), Color::Cyan),
        };
        let mut first = vec![label("state"), Span::styled(word, Style::new().fg(colour).add_modifier(Modifier::BOLD))];
        if let Some(next) = view.next {
            first.push(Span::raw(format!(
                "   epoch {}   next sequence {}   for {}",
                next.epoch().0,
                grouped(next.sequence().0),
                seconds(view.since_first_ns)
            )));
        }
        let mut lines = vec![Line::from(first)];
        if view.pulse == Pulse::Waiting {
            let room = usize::from(width).saturating_sub(LABEL_WIDTH + 1);
            lines.extend(
                wrapped(&view.waiting_for, room).into_iter().map(|text| Line::from(vec![label(""), Span::raw(text)])),
            );
        }
        for path in view.paths.iter().filter(|_| view.pulse != Pulse::Waiting) {
            let spans = vec![label("lane"), Span::raw(format!("{} lines by {}", grouped(path.lines), path.what))];
            lines.push(Line::from(spans));
            if !path.trouble.is_empty() {
                let trouble = Span::styled(path.trouble.clone(), Style::new().fg(Color::Red));
                lines.push(Line::from(vec![label(""), trouble]));
            }
        }
        let heard = view.silence_ns.map_or("never".into(), |ns| match ns {
            ..1_000_000_000 => format!("{} ms ago", ns / 1_000_000),
            _ => format!("{} ago", seconds(ns)),
        });
        lines.push(Line::from(vec![
            label("flow"),
            Span::raw(format!(
                "{} lines/s   {} delivered   lag {}   last sign of life {heard}",
                grouped(view.rate.round() as u64),
                grouped(totals.delivered),
                grouped(view.lag),
            )),
        ]));
        let mut loss = vec![
            label("loss"),
            count("lines lost", totals.lost, Color::Red),
            count("gaps", totals.gaps, Color::Red),
            count("silences", totals.silences, Color::Yellow),
            count("new epochs", totals.epochs_begun, Color::Yellow),
        ];
        if let Some(gap) = view.last_gap {
            loss.push(Span::raw(format!("last: {} from {} ({:?})", grouped(gap.count), gap.first, gap.cause)));
        }
        if let Some(split) = view.last_split {
            loss.push(Span::styled(format!("   {}", split_text(split)), Style::new().fg(Color::Red)));
        }
        lines.push(Line::from(loss));
        let states = &view.states;
        lines.push(Line::from(vec![
            label("books"),
            count("Live", states.live, Color::Green),
            count("Suspect", states.suspect, Color::Yellow),
            count("Stale", states.stale, Color::Red),
            count("Unknown", states.unknown + states.snapshotting, Color::Blue),
        ]));
        lines.push(Line::from(vec![
            label("digests"),
            count("agreed", totals.digests_agreed, Color::Green),
            count("disagreed", totals.digests_disagreed, Color::Red),
            count("healed", totals.digests_healed, Color::Yellow),
        ]));
        lines
    }

    fn table_grid(&self) -> Grid {
        let heading = ["symbol", "book", "bid size", "bid", "ask", "ask size", "last trade", "lines"];
        // What goes first where there is no room: a number is shown whole or not at all.
        let mut grid = Grid::new(&heading, &[7, 6, 5, 2, 1]);
        for row in &self.view.rows {
            let size = |level: Option<Level>| level.map_or("-".into(), |level| grouped(level.size));
            let price = |level: Option<Level>| level.map_or("-".into(), |level| row.price(level.price));
            grid.push(vec![
                (row.symbol.clone(), Style::new()),
                (format!("{:?}", row.state), state_style(row.state)),
                (size(row.bbo.bid), Style::new()),
                (price(row.bbo.bid), Style::new()),
                (price(row.bbo.ask), Style::new()),
                (size(row.bbo.ask), Style::new()),
                (row.last_trade.map_or("-".into(), |trade| row.price(trade.price)), Style::new()),
                (grouped(row.lines), Style::new()),
            ]);
        }
        grid.align_left(2);
        grid
    }

    fn render_table(&mut self, frame: &mut Frame<'_>, area: Rect, grid: Grid) {
        let (chosen, view) = (self.chosen(), &self.view);
        let title = match view.instruments {
            0 => " no instruments yet ".into(),
            count if count > MAX_ROWS => {
                format!(" the {MAX_ROWS} most active of {} instruments ", grouped(count as u64))
            }
            count => format!(" instruments: {}, most active first ", grouped(count as u64)),
        };
        self.table.select((!view.rows.is_empty()).then_some(chosen));
        let table = grid
            .into_table(area.width.saturating_sub(FRAME), true)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::bordered().title(title));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn depth_grid(&self) -> Grid {
        let mut grid = Grid::new(&["orders", "size", "bid", "ask", "size", "orders"], &[5, 0, 4, 1]);
        let depth = &self.view.depth;
        let Some(row) = &depth.row else { return grid };
        for i in 0..depth.bids.len().max(depth.asks.len()) {
            let mut cells = level_cells(row, depth.bids.get(i), Color::Green).to_vec();
            cells.reverse();
            cells.extend(level_cells(row, depth.asks.get(i), Color::Red));
            grid.push(cells);
        }
        grid
    }

    fn render_depth(&self, frame: &mut Frame<'_>, area: Rect, grid: Grid) {
        let depth = &self.view.depth;
        let Some(row) = &depth.row else {
            frame.render_widget(Block::bordered().title(" depth "), area);
            return;
        };
        let state = Span::styled(format!("{:?}", row.state), state_style(row.state));
        let mut title = vec![Span::raw(format!(" {} ", row.symbol)), state, Span::raw(" ")];
        if let Some(status) = row.status.map(status_text).filter(|text| !text.is_empty()) {
            title.push(Span::raw(format!("{status} ")));
        }
        let block = Block::bordered().title(Line::from(title));
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let [ladder, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(2)]).areas(inside);
        frame.render_widget(grid.into_table(ladder.width, false), ladder);
        frame.render_widget(Paragraph::new(foot_lines(depth, row)), foot);
    }
}

type CellText = (String, Style);

/// Text in columns, each as wide as what is in it.
struct Grid {
    widths: Vec<u16>,
    heading: Vec<String>,
    rows: Vec<Vec<CellText>>,
    /// Columns that go, one after the other, where there is no room for all.
    spare: &'static [usize],
    /// The first of the columns that are aligned to the right.
    right_from: usize,
}

impl Grid {
    fn new(heading: &[&str], spare: &'static [usize]) -> Grid {
        Grid {
            widths: heading.iter().map(|name| name.len() as u16).collect(),
            heading: heading.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            spare,
            right_from: 0,
        }
    }

    fn align_left(&mut self, columns: usize) {
        self.right_from = columns;
    }

    fn push(&mut self, row: Vec<CellText>) {
        for (width, (text, _)) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(text.chars().count() as u16);
        }
        self.rows.push(row);
    }

    /// Columns of the terminal that all of it takes: a blank goes between two of its own.
    fn width(&self) -> u16 {
        self.widths.iter().sum::<u16>() + self.widths.len().saturating_sub(1) as u16
    }

    /// The same without the two columns that go first: beside another panel they can be missed.
    fn least_width(&self) -> u16 {
        self.spare.iter().take(2).fold(self.width(), |width, column| width - self.widths[*column] - 1)
    }

    /// Which columns are shown in a terminal of `width` columns.
    fn kept(&self, width: u16) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.widths.len()).collect();
        let taken = |kept: &[usize]| {
            kept.iter().map(|column| self.widths[*column]).sum::<u16>() + kept.len().saturating_sub(1) as u16
        };
        for spare in self.spare {
            if taken(&kept) <= width {
                break;
            }
            kept.retain(|column| column != spare);
        }
        kept
    }

    /// A table of what fits `width`. `spread`: what is left over goes between the columns.
    fn into_table(self, width: u16, spread: bool) -> Table<'static> {
        let kept = self.kept(width);
        let cell = |column: usize, text: &str, style: Style| {
            let line = Line::from(text.to_owned());
            Cell::from(if column >= self.right_from { line.right_aligned() } else { line }).style(style)
        };
        let dim = Style::new().fg(Color::DarkGray);
        let heading = TableRow::new(kept.iter().map(|column| cell(*column, &self.heading[*column], dim)));
        let rows = self.rows.iter().map(|row| {
            TableRow::new(kept.iter().map(|column| {
                let (text, style) = &row[*column];
                cell(*column, text, *style)
            }))
        });
        let widths = kept.iter().map(|column| match self.widths[*column] {
            width if spread && *column >= self.right_from => Constraint::Min(width),
            width => Constraint::Length(width),
        });
        Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>()).header(heading)
    }
}

/// `text` in lines of at most `width` characters, cut between words (within one only where it is longer than a line).
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => {
                let letters: Vec<char> = word.chars().collect();
                lines.extend(letters.chunks(width).map(|part| part.iter().collect::<String>()));
            }
        }
    }
    lines
}

fn label(text: &str) -> Span<'static> {
    Span::styled(format!(" {text:<width$}", width = LABEL_WIDTH - 1), Style::new().fg(Color::DarkGray))
}

/// A number and what it counts; coloured once it is not zero.
fn count(what: &str, number: u64, colour: Color) -> Span<'static> {
    let style = if number > 0 { Style::new().fg(colour) } else { Style::new().fg(Color::DarkGray) };
    Span::styled(format!("{} {what}   ", grouped(number)), style)
}

fn state_style(state: BookState) -> Style {
    Style::new().fg(match state {
        BookState::Live => Color::Green,
        BookState::Suspect => Color::Yellow,
        BookState::Stale => Color::Red,
        BookState::Unknown | BookState::Snapshotting => Color::Blue,
    })
}

/// Price, size and order count of a level; blanks where there is none.
fn level_cells(row: &Row, level: Option<&Level>, colour: Color) -> [CellText; 3] {
    let Some(level) = level else { return [const { String::new() }; 3].map(|blank| (blank, Style::new())) };
    [
        (row.price(level.price), Style::new().fg(colour)),
        (grouped(level.size), Style::new()),
        (grouped(u64::from(level.orders)), Style::new().fg(Color::DarkGray)),
    ]
}

fn foot_lines(depth: &Depth, row: &Row) -> Vec<Line<'static>> {
    let dim = Style::new().fg(Color::DarkGray);
    let levels = Line::styled(
        format!(
            "{} bid levels, {} ask levels, {} orders",
            grouped(depth.bid_levels as u64),
            grouped(depth.ask_levels as u64),
            grouped(depth.orders)
        ),
        dim,
    );
    let trade = match row.last_trade {
        Some(trade) => {
            format!("last trade {} @ {}, of {}", grouped(trade.size), row.price(trade.price), grouped(row.trades))
        }
        None => "no trade yet".into(),
    };
    vec![levels, Line::styled(trade, dim)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(&["symbol", "bid", "size"], &[2]);
        grid.push(vec![("AAPL".into(), Style::new()), ("1,234.56".into(), Style::new()), ("7".into(), Style::new())]);
        grid
    }

    #[test]
    fn a_column_is_shown_whole_or_not_at_all() {
        assert_eq!((grid().widths.clone(), grid().width()), (vec![6, 8, 4], 20));
        assert_eq!(grid().kept(20), [0, 1, 2]);
        assert_eq!(grid().kept(19), [0, 1]);
        assert_eq!(grid().kept(3), [0, 1], "the rest stays, cut by the frame: there is nothing else to show");
    }

    #[test]
    fn a_long_text_is_wrapped_between_words() {
        assert_eq!(wrapped("no ring at /dev/shm/x", 10), ["no ring at", "/dev/shm/x"]);
        assert_eq!(wrapped("abcdefgh i", 5), ["abcde", "fgh i"]);
        assert_eq!(wrapped("", 5), [] as [&str; 0]);
    }
}
