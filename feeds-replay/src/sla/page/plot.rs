//! Figures of the page, as SVG that takes its colours from the page's style.

use std::fmt::Write;

use super::escape;
use crate::sla::outcome::{CaseOutcome, LoadProfile, Stages};
use crate::sla::verdict::percentile_name;
use crate::verdict::duration;

/// The size of a figure in its own units; it is scaled to where it stands.
const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 320.0;
/// Room for the axes.
const LEFT: f64 = 68.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 50.0;
/// Curves that are drawn, the judged one first.
pub(super) const CURVES: usize = 4;

/// A frame with both axes.
struct Frame {
    out: String,
    x_max: f64,
    y_min: f64,
    y_max: f64,
}

impl Frame {
    fn new(title: &str, x_max: f64, y_min: f64, y_max: f64) -> Frame {
        let mut out = String::new();
        let title = escape(title);
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>"
        );
        Frame { out, x_max, y_min, y_max }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value - self.y_min) / (self.y_max - self.y_min);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
    }

    fn x_tick(&mut self, value: f64, label: &str) {
        let (x, bottom) = (self.x(value), HEIGHT - BOTTOM);
        // A label at either end stays inside the figure.
        let anchor = if x > WIDTH - RIGHT - 24.0 { "end" } else { "middle" };
        let _ = write!(
            self.out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"x-tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 18.0,
            escape(label)
        );
    }

    fn y_tick(&mut self, value: f64, label: &str) {
        let y = self.y(value);
        let _ = write!(
            self.out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"y-tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.5,
            escape(label)
        );
    }

    fn axes(&mut self, x_title: &str) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let _ = write!(
            self.out,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"label x-title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            escape(x_title)
        );
    }

    fn end(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// How many nines a percentile has: 90 has one, 99.9 three.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).max(1e-9).log10()
}

/// Latency by percentile: nines across, decades of time upwards, with the limits.
pub(super) fn percentiles(case: &CaseOutcome) -> String {
    let curves = &case.distributions[..case.distributions.len().min(CURVES)];
    let x_max = curves
        .iter()
        .filter_map(|curve| curve.curve.last())
        .map(|(percentile, _)| nines(*percentile))
        .chain(case.evidence.limits.iter().map(|limit| nines(limit.limit.percentile) + 0.2))
        .fold(3.0, f64::max);
    let values = || {
        let limits = case.evidence.limits.iter().map(|limit| limit.limit.at_most_ns);
        curves.iter().flat_map(|curve| curve.curve.iter().map(|(_, value)| *value)).chain(limits).map(|v| v.max(1))
    };
    let lowest = (values().min().unwrap_or(100) as f64).log10().floor();
    let highest = (values().max().unwrap_or(1_000) as f64).log10().ceil().max(lowest + 1.0);
    let mut frame = Frame::new("Latency by percentile, with the limits", x_max, lowest, highest);
    for nines in 0..=x_max.floor() as u32 {
        let label = match nines {
            0 => "0 %".into(),
            1 => "90 %".into(),
            2 => "99 %".into(),
            more => format!("99.{} %", "9".repeat(more as usize - 2)),
        };
        frame.x_tick(nines.into(), &label);
    }
    for decade in lowest as i32..=highest as i32 {
        frame.y_tick(decade.into(), &decade_name(decade));
    }
    frame.axes("percentile");
    for (at, curve) in curves.iter().enumerate().rev() {
        let points: Vec<String> = curve
            .curve
            .iter()
            .map(|(percentile, value)| {
                format!("{:.1},{:.1}", frame.x(nines(*percentile)), frame.y(((*value).max(1) as f64).log10()))
            })
            .collect();
        let judged = if at == 0 { " judged" } else { "" };
        let _ = write!(frame.out, "<polyline class=\"curve k{at}{judged}\" points=\"{}\"/>", points.join(" "));
    }
    for (at, limit) in case.evidence.limits.iter().enumerate() {
        let below = at % 2 == 1;
        let (x, y) = (frame.x(nines(limit.limit.percentile)), frame.y((limit.limit.at_most_ns as f64).log10()));
        let name = format!("{} ≤ {}", percentile_name(limit.limit.percentile), short(limit.limit.at_most_ns));
        // Beside the mark where there is room, else on its other side; above it or below in turns, so that limits of like
        // size keep their names apart, and inside the figure.
        let (at, anchor) = if x > WIDTH * 0.6 { (x - 6.0, "end") } else { (x + 6.0, "start") };
        let above = if (below || y < TOP + 20.0) && y < HEIGHT - BOTTOM - 20.0 { y + 20.0 } else { y - 7.0 };
        let _ = write!(
            frame.out,
            "<path class=\"limit\" d=\"M{:.1} {y:.1}H{:.1}M{x:.1} {y:.1}v8\"/>\
             <text class=\"limit\" x=\"{at:.1}\" y=\"{above:.1}\" text-anchor=\"{anchor}\">{}</text>",
            (x - 14.0).max(LEFT),
            (x + 14.0).min(WIDTH - RIGHT),
            escape(&name)
        );
    }
    frame.end()
}

/// A power of ten of ns, as an axis names it.
fn decade_name(decade: i32) -> String {
    let (unit, of) = match decade {
        ..3 => ("ns", 0),
        3..6 => ("us", 3),
        6..9 => ("ms", 6),
        _ => ("s", 9),
    };
    format!("{} {unit}", 10u64.pow((decade - of).max(0) as u32))
}

/// Ns in the unit that suits them, without digits that say nothing.
pub(super) fn short(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = usize::from(value < 100.0 && value.fract() > 0.0) + usize::from(value < 10.0 && value.fract() > 0.0);
    format!("{value:.digits$} {unit}")
}

/// Records due over time: the most in one ms of each part, and the mean.
pub(super) fn bursts(load: &LoadProfile) -> String {
    let end_s = load.parts.last().map_or(1.0, |part| {
        let width = load.parts.get(1).map_or(1_000_000, |second| second.0);
        (part.0 + width) as f64 / 1e9
    });
    let peak = load.peak_per_ms.max(1) as f64;
    let step = nice(peak / 4.0);
    let top = (peak / step).ceil() * step;
    let mut frame = Frame::new("Load over time: records due in each millisecond", end_s, 0.0, top);
    let x_step = nice(end_s / 5.0);
    let mut x = 0.0;
    while x <= end_s * 1.000_1 {
        frame.x_tick(x, &trimmed(x));
        x += x_step;
    }
    let mut y = 0.0;
    while y <= top * 1.000_1 {
        frame.y_tick(y, &trimmed(y));
        y += step;
    }
    let width = (WIDTH - LEFT - RIGHT) / load.parts.len().max(1) as f64;
    let zero = frame.y(0.0);
    let mut bars = [String::new(), String::new()];
    for (start, mean, most) in &load.parts {
        let x = frame.x(*start as f64 / 1e9);
        for (bars, value) in bars.iter_mut().zip([*most as f64, *mean]) {
            let y = frame.y(value);
            let _ = write!(bars, "M{x:.1} {zero:.1}V{y:.1}h{width:.2}V{zero:.1}z");
        }
    }
    let _ = write!(frame.out, "<path class=\"pale k0\" d=\"{}\"/><path class=\"fill k0\" d=\"{}\"/>", bars[0], bars[1]);
    frame.axes("seconds from the start");
    frame.end()
}

/// 1, 2 or 5 times a power of ten, at or above `value`.
fn nice(value: f64) -> f64 {
    let decade = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * decade)
        .find(|step| *step >= value * 0.999)
        .unwrap_or(decade * 10.0)
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Two bars, at p50 and at p99.9, cut into the stages.
pub(super) fn stages(stages: &Stages) -> String {
    let mut out = String::new();
    let title = "Share of each stage at p50 and at p99.9";
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} 118\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>");
    let rows = [("p50", &stages.p50_ns), ("p99.9", &stages.p999_ns)];
    for (row, (name, times)) in rows.into_iter().enumerate() {
        let y = 22.0 + row as f64 * 56.0;
        let sum = times.iter().sum::<f64>().max(1e-9);
        let _ = write!(
            out,
            "<text class=\"label\" x=\"0\" y=\"{:.1}\">{name}: {}</text>",
            y - 7.0,
            escape(&duration(sum as u64))
        );
        let mut x = 0.0;
        for (stage, time) in times.iter().enumerate() {
            let width = WIDTH * time / sum;
            let _ = write!(
                out,
                "<rect class=\"fill k{stage}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"26\"><title>{}: {}</title></rect>",
                escape(&stages.names[stage]),
                escape(&duration(*time as u64))
            );
            x += width;
        }
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_name_decades_and_round_steps() {
        assert_eq!([2, 3, 5, 6, 9].map(decade_name), ["100 ns", "1 us", "100 us", "1 ms", "1 s"]);
        assert_eq!([0.7, 1.0, 3.0, 12.0, 260.0].map(nice), [1.0, 1.0, 5.0, 20.0, 500.0]);
        assert_eq!([0.0, 2.5, 10.0].map(trimmed), ["0", "2.5", "10"]);
        assert_eq!(
            [999, 1_500, 50_000, 1_000_000, 12_340_000].map(short),
            ["999 ns", "1.50 us", "50 us", "1 ms", "12.3 ms"]
        );
    }

    #[test]
    fn percentiles_stand_by_their_nines() {
        for (percentile, expected) in [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0)] {
            assert!((nines(percentile) - expected).abs() < 1e-9, "{percentile}");
        }
    }
}
