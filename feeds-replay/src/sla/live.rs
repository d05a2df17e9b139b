//! How a run goes on, to look at: a screen in a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cli::{eprintln, println};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};

use super::file::Case;
use super::run::{Live, Watcher};
use crate::verdict::duration;

/// Points of the p99.9 that are shown.
const HISTORY: usize = 400;
/// A plain line so often.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Shows runs one after the other.
pub struct Shown<'a> {
    quiet: bool,
    /// What Ctrl-C and q set: a terminal in raw mode sends no signal.
    stop: &'a AtomicBool,
    screen: Option<DefaultTerminal>,
    may_draw: bool,
    view: View,
    last_line: Duration,
}

/// What the screen shows.
#[derive(Default)]
struct View {
    live: Live,
    rate: f64,
    /// Messages and when, the last time.
    before: (u64, Duration),
    /// The worst subscriber's p99.9, ns.
    history: VecDeque<u64>,
}

impl<'a> Shown<'a> {
    /// On the terminal, if there is one and `quiet` does not say otherwise. `stop` is set when the user asks for it there.
    pub fn new(quiet: bool, stop: &'a AtomicBool) -> Shown<'a> {
        let may_draw = !quiet && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        Shown { quiet, stop, screen: None, may_draw, view: View::default(), last_line: Duration::ZERO }
    }

    /// Gives the terminal back.
    pub fn end(&mut self) {
        if self.screen.take().is_some() {
            ratatui::restore();
        }
    }

    fn listen(&self) -> std::io::Result<()> {
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && (key.code == KeyCode::Char('q')
                    || (key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)))
            {
                // Relaxed: the flag carries nothing but itself.
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Watcher for Shown<'_> {
    fn on_ready(&mut self, case: &Case, pids: &[u32]) {
        self.view = View::default();
        self.last_line = Duration::ZERO;
        if self.may_draw {
            self.screen = ratatui::try_init().ok();
        }
        if !self.quiet && self.screen.is_none() {
            let subscribers: Vec<String> = pids[1..].iter().map(u32::to_string).collect();
            println!("{}: publisher is pid {}, subscriber is pid {}", case.name, pids[0], subscribers.join(", "));
        }
    }

    fn on_live(&mut self, live: &Live) {
        if self.quiet {
            return;
        }
        self.view.take(live);
        match &mut self.screen {
            Some(screen) => {
                // A terminal that fails is no reason to end a measurement: what was to be seen is in the report.
                let _ = screen.draw(|frame| render(frame, &self.view));
                let _ = self.listen();
            }
            None if live.elapsed >= self.last_line + LINE_EVERY => {
                self.last_line = live.elapsed;
                eprintln!("{}", line(&self.view));
            }
            None => {}
        }
    }
}

impl View {
    fn take(&mut self, live: &Live) {
        let (messages, at) = self.before;
        let passed = live.elapsed.saturating_sub(at).as_secs_f64();
        if passed >= 0.2 {
            self.rate = live.messages.saturating_sub(messages) as f64 / passed;
            self.before = (live.messages, live.elapsed);
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            let worst = live.subscribers.iter().map(|progress| progress.p999).max().unwrap_or(0);
            self.history.push_back(worst.into());
        }
        self.live = live.clone();
    }
}

fn line(view: &View) -> String {
    let live = &view.live;
    let worst = live.subscribers.iter().max_by_key(|progress| progress.p999).copied().unwrap_or_default();
    let lost: u64 = live.subscribers.iter().map(|progress| progress.lost).sum();
    format!(
        "{}: {} of {} messages after {:.1} s, {:.0} a second; lag at most {}; p50 {} p99 {} p99.9 {}; {lost} lost",
        live.case,
        live.messages,
        live.planned,
        live.elapsed.as_secs_f64(),
        view.rate,
        duration(live.lag_max_ns),
        duration(worst.p50.into()),
        duration(worst.p99.into()),
        duration(worst.p999.into())
    )
}

fn render(frame: &mut Frame<'_>, view: &View) {
    let live = &view.live;
    let [top, bar, table, history, bottom] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(live.subscribers.len() as u16 + 3),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let head = format!(
        "{}\n{:.1} s   {:.0} messages a second   sender lag at most {}",
        live.case,
        live.elapsed.as_secs_f64(),
        view.rate,
        duration(live.lag_max_ns)
    );
    frame.render_widget(Paragraph::new(head), top);
    let share = if live.planned == 0 { 0.0 } else { (live.messages as f64 / live.planned as f64).clamp(0.0, 1.0) };
    let done = format!("{} of {} messages", live.messages, live.planned);
    frame.render_widget(Gauge::default().ratio(share).label(done), bar);
    let rows = live.subscribers.iter().enumerate().map(|(at, progress)| {
        Row::new([
            format!("subscriber {}", at + 1),
            duration(progress.p50.into()),
            duration(progress.p99.into()),
            duration(progress.p999.into()),
            progress.lines.to_string(),
            progress.lost.to_string(),
        ])
    });
    let widths = [14, 11, 11, 11, 12, 8].map(Constraint::Length);
    let header = Row::new(["", "p50", "p99", "p99.9", "lines", "lost"]);
    let table_widget = Table::new(rows, widths)
        .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(" latency from intended hand-over, the last half second "));
    frame.render_widget(table_widget, table);
    let room = usize::from(history.width.saturating_sub(2));
    let shown: Vec<u64> = view.history.iter().skip(view.history.len().saturating_sub(room)).copied().collect();
    let most = shown.iter().copied().max().unwrap_or(0);
    let title = format!(" p99.9 over time, at most {} ", duration(most));
    frame.render_widget(Sparkline::default().data(&shown).block(Block::bordered().title(title)), history);
    frame.render_widget(Paragraph::new("q or Ctrl-C ends the run with the report of what was measured"), bottom);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::spec::Progress;
    use super::*;

    fn live(messages: u64, seconds: u64) -> Live {
        Live {
            case: "open".into(),
            messages,
            planned: 1_000,
            lag_max_ns: 1_500,
            subscribers: vec![
                Progress { subscriber: 0, lines: 700, p50: 400, p99: 2_000, p999: 40_000, lost: 3 },
                Progress { subscriber: 1, lines: 690, p50: 500, p99: 2_500, p999: 50_000, lost: 0 },
            ],
            elapsed: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_screen_shows_rate_lag_percentiles_and_losses() {
        let mut view = View::default();
        view.take(&live(100, 1));
        view.take(&live(600, 2));
        for (width, height) in [(80, 20), (40, 10), (10, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| render(frame, &view)).expect("draws");
            let text: String = terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect();
            if width == 80 {
                for expected in
                    ["open", "500 messages a second", "1.5 us", "600 of 1000", "40.0 us", "50.0 us", "690", "Ctrl-C"]
                {
                    assert!(text.contains(expected), "{expected}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_plain_line_says_the_same() {
        let mut view = View::default();
        view.take(&live(100, 1));
        view.take(&live(600, 2));
        assert_eq!(
            line(&view),
            "open: 600 of 1000 messages after 2.0 s, 500 a second; lag at most 1.5 us; p50 500 ns p99 2.5 us p99.9 50.0 us; 3 lost"
        );
    }
}
