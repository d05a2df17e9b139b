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

use super::poll::Board;
use super::view::{Depth, MAX_ROWS, Pulse, Row, View, grouped, status_text};
use super::{Arguments, way};

/// The screen is drawn anew at most this often, whatever comes.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Columns of the depth panel, frame included.
const DEPTH_WIDTH: u16 = 46;
/// Below this width there is no room for it beside the table.
const LEAST_WIDTH_FOR_DEPTH: u16 = 100;

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
        let paths = self.view.paths.len().max(1) as u16;
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(6 + paths), Constraint::Min(3), Constraint::Length(1)])
                .areas(frame.area());
        self.render_channel(frame, top);
        if middle.width >= LEAST_WIDTH_FOR_DEPTH {
            let [left, right] =
                Layout::horizontal([Constraint::Min(20), Constraint::Length(DEPTH_WIDTH)]).areas(middle);
            self.render_table(frame, left);
            self.render_depth(frame, right);
        } else {
            let below = (self.arguments.depth + 4).min(middle.height / 2);
            let [above, below] = Layout::vertical([Constraint::Min(3), Constraint::Length(below)]).areas(middle);
            self.render_table(frame, above);
            self.render_depth(frame, below);
        }
        let help = "  up/down, page up/down, home/end: choose an instrument    q: leave";
        frame.render_widget(Line::styled(help, Style::new().fg(Color::DarkGray)), bottom);
    }

    fn render_channel(&self, frame: &mut Frame<'_>, area: Rect) {
        let view = &self.view;
        let totals = &view.totals;
        let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
        let (word, colour) = match view.pulse {
            Pulse::Waiting => ("waiting for its publisher".into(), Color::Yellow),
            Pulse::Running if view.session_ended => ("running, the venue's session is over".into(), Color::Green),
            Pulse::Running => ("running".into(), Color::Green),
            Pulse::Silent => (format!("SILENT for {}", seconds(view.silence_ns.unwrap_or(0))), Color::Red),
            Pulse::Ended => ("ended, as its publisher said; waiting for the next one".into(), Color::Cyan),
        };
        let mut first = vec![label("state"), Span::styled(word, Style::new().fg(colour).add_modifier(Modifier::BOLD))];
        if let Some(next) = view.next {
            first.push(Span::raw(format!(
                "   epoch {}   next sequence {}   since first line {}",
                next.epoch().0,
                grouped(next.sequence().0),
                seconds(view.since_first_ns)
            )));
        }
        let mut lines = vec![Line::from(first)];
        if view.pulse == Pulse::Waiting {
            lines.push(Line::from(vec![label(""), Span::raw(view.waiting_for.clone())]));
        }
        for path in view.paths.iter().filter(|_| view.pulse != Pulse::Waiting) {
            let mut spans = vec![label("lane"), Span::raw(format!("{}: {} lines", path.what, grouped(path.lines)))];
            if !path.trouble.is_empty() {
                spans.push(Span::styled(format!("   {}", path.trouble), Style::new().fg(Color::Red)));
            }
            lines.push(Line::from(spans));
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
        lines.push(Line::from(loss));
        let states = &view.states;
        lines.push(Line::from(vec![
            label("books"),
            count("Live", states.live, Color::Green),
            count("Suspect", states.suspect, Color::Yellow),
            count("Stale", states.stale, Color::Red),
            count("Unknown", states.unknown + states.snapshotting, Color::Blue),
            Span::raw("  digests: "),
            count("agreed", totals.digests_agreed, Color::Green),
            count("disagreed", totals.digests_disagreed, Color::Red),
            count("healed", totals.digests_healed, Color::Yellow),
        ]));
        let title = format!(" channel '{}' by {} ", self.arguments.channel, way(self.arguments));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(Span::styled(title, bold))), area);
    }

    fn render_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let chosen = self.chosen();
        let view = &self.view;
        let heading = TableRow::new(
            ["symbol", "book", "bid size", "bid", "ask", "ask size", "last trade", "lines"].map(|name| match name {
                "symbol" | "book" => Cell::from(name),
                _ => right(name.into()),
            }),
        )
        .style(Style::new().fg(Color::DarkGray));
        let rows = view.rows.iter().map(table_row);
        let widths = [
            Constraint::Length(9),
            Constraint::Length(8),
            Constraint::Min(8),
            Constraint::Min(9),
            Constraint::Min(9),
            Constraint::Min(8),
            Constraint::Min(9),
            Constraint::Min(8),
        ];
        let title = match view.instruments {
            0 => " no instruments yet ".into(),
            count if count > MAX_ROWS => {
                format!(" the {MAX_ROWS} most active of {} instruments ", grouped(count as u64))
            }
            count => format!(" {} instruments, most active first ", grouped(count as u64)),
        };
        self.table.select((!view.rows.is_empty()).then_some(chosen));
        let table = Table::new(rows, widths)
            .header(heading)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::bordered().title(title));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn render_depth(&self, frame: &mut Frame<'_>, area: Rect) {
        let depth = &self.view.depth;
        let Some(row) = &depth.row else {
            frame.render_widget(Block::bordered().title(" depth "), area);
            return;
        };
        let mut title = vec![Span::raw(format!(" {} ", row.symbol)), state_span(row.state), Span::raw(" ")];
        if let Some(status) = row.status.map(status_text).filter(|text| !text.is_empty()) {
            title.push(Span::raw(format!("{status} ")));
        }
        let block = Block::bordered().title(Line::from(title));
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let [ladder, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(2)]).areas(inside);
        let heading = TableRow::new(["orders", "size", "bid", "ask", "size", "orders"].map(|name| right(name.into())))
            .style(Style::new().fg(Color::DarkGray));
        let rows = (0..depth.bids.len().max(depth.asks.len())).map(|i| {
            let bid = level_cells(row, depth.bids.get(i), Color::Green);
            let [price, size, orders] = level_cells(row, depth.asks.get(i), Color::Red);
            let [bid_price, bid_size, bid_orders] = bid;
            TableRow::new([bid_orders, bid_size, bid_price, price, size, orders])
        });
        let widths = [
            Constraint::Length(6),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Length(6),
        ];
        frame.render_widget(Table::new(rows, widths).header(heading), ladder);
        frame.render_widget(Paragraph::new(foot_lines(depth, row)), foot);
    }
}

fn label(text: &str) -> Span<'static> {
    Span::styled(format!(" {text:<7}"), Style::new().fg(Color::DarkGray))
}

/// A number and what it counts; coloured once it is not zero.
fn count(what: &str, number: u64, colour: Color) -> Span<'static> {
    let style = if number > 0 { Style::new().fg(colour) } else { Style::new().fg(Color::DarkGray) };
    Span::styled(format!("{} {what}   ", grouped(number)), style)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn state_style(state: BookState) -> Style {
    Style::new().fg(match state {
        BookState::Live => Color::Green,
        BookState::Suspect => Color::Yellow,
        BookState::Stale => Color::Red,
        BookState::Unknown | BookState::Snapshotting => Color::Blue,
    })
}

fn state_span(state: BookState) -> Span<'static> {
    Span::styled(format!("{state:?}"), state_style(state))
}

fn table_row(row: &Row) -> TableRow<'static> {
    let size = |level: Option<Level>| right(level.map_or("-".into(), |level| grouped(level.size)));
    let price = |level: Option<Level>| right(level.map_or("-".into(), |level| row.price(level.price)));
    TableRow::new([
        Cell::from(row.symbol.clone()),
        Cell::from(state_span(row.state)),
        size(row.bbo.bid),
        price(row.bbo.bid),
        price(row.bbo.ask),
        size(row.bbo.ask),
        right(row.last_trade.map_or("-".into(), |trade| row.price(trade.price))),
        right(grouped(row.lines)),
    ])
}

/// Price, size and order count of a level; blanks where there is none.
fn level_cells(row: &Row, level: Option<&Level>, colour: Color) -> [Cell<'static>; 3] {
    let Some(level) = level else { return [Cell::from(""), Cell::from(""), Cell::from("")] };
    let style = Style::new().fg(colour);
    [right(row.price(level.price)).style(style), right(grouped(level.size)), right(grouped(u64::from(level.orders)))]
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
