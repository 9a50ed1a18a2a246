//! A filter's fill over its array, as a small plot for people and a sentence about it.
//!
//! A good hash fills every slice of the array alike. The plot is scaled to what there is, so that
//! bands show even where they are slight; whether they mean anything is what the sentence says.

use inbloom::{Filter, Slice};

use crate::numbers::rate;

/// Columns of the plot, and slices that are asked for.
pub const COLUMNS: usize = 64;
const ROWS: usize = 8;

/// The fill of each slice as a bar.
pub fn plot(slices: &[Slice]) -> String {
    let mean = slices.iter().map(|slice| slice.fill).sum::<f64>() / slices.len().max(1) as f64;
    bars(&columns(slices), mean)
}

/// As many slices as there are columns: where an array has more, the mean of adjacent slices.
fn columns(slices: &[Slice]) -> Vec<f64> {
    let count = slices.len().min(COLUMNS);
    let start = |column: usize| column * slices.len() / count;
    let mean = |part: &[Slice]| {
        part.iter().map(|slice| slice.fill).sum::<f64>() / part.len().max(1) as f64
    };
    (0..count).map(|column| mean(&slices[start(column)..start(column + 1)])).collect()
}

/// Bars of marks. The scale begins at 0, unless all bars are alike within a fifth of the mean: then
/// only what differs is shown, or nothing would be seen to differ.
fn bars(columns: &[f64], mean: f64) -> String {
    let lowest = columns.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = columns.iter().copied().fold(0.0, f64::max);
    let (from, to) = match lowest > 0.8 * mean && highest < 1.2 * mean {
        true => (0.8 * mean, 1.2 * mean),
        false if highest > 0.0 => (0.0, highest),
        false => (0.0, 1.0),
    };
    let step = (to - from) / ROWS as f64;
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let bottom = from + step * row as f64;
        let label = match row {
            0 => rate(from),
            _ if row == ROWS - 1 => rate(to),
            _ => String::new(),
        };
        let mark = |fill: &f64| match (fill - bottom) / step {
            full if full >= 0.75 => '#',
            part if part >= 0.25 => ':',
            _ => ' ',
        };
        let bars: String = columns.iter().map(mark).collect();
        text.push_str(format!("{label:>8} |{bars}").trim_end());
        text.push('\n');
    }
    text.push_str(&format!("{:>8} +{}\n", "", "-".repeat(columns.len())));
    text
}

/// How full a slice should be.
pub fn expectation(filter: &Filter, slices: &[Slice]) -> String {
    let range = |values: &dyn Fn(&Slice) -> f64| {
        let lowest = slices.iter().map(values).fold(f64::INFINITY, f64::min);
        let highest = slices.iter().map(values).fold(0.0, f64::max);
        let (lowest, highest) = (rate(lowest), rate(highest));
        if lowest == highest { lowest } else { format!("{lowest} to {highest}") }
    };
    if slices.is_empty() {
        return "nothing: it has no cells".to_string();
    }
    if filter.plan().kind().is_exact() {
        return format!("{} on the whole", range(&|slice| slice.expected));
    }
    let arrays = filter.plan().kind().labels().arrays;
    format!(
        "{} in each of {} slices, deviation {}{arrays}",
        range(&|slice| slice.expected),
        slices.len(),
        range(&|slice| slice.deviation),
    )
}

/// Whether chance explains what differs.
pub fn verdict(filter: &Filter, slices: &[Slice]) -> String {
    if filter.plan().kind().is_exact() {
        return "none: integers are not hashed, so the plot shows where they are".to_string();
    }
    let out: Vec<usize> = (0..slices.len()).filter(|at| slices[*at].stands_out()).collect();
    if out.is_empty() && !slices.iter().any(Slice::is_telling) {
        return "none: with so few keys, any slice could be empty by chance".to_string();
    }
    if out.is_empty() {
        return "within chance: no slice is more than 5 deviations off".to_string();
    }
    let which: Vec<String> = runs(&out)
        .iter()
        .take(6)
        .map(|(from, to)| match from == to {
            true => (from + 1).to_string(),
            false => format!("{}-{}", from + 1, to + 1),
        })
        .collect();
    let more = if runs(&out).len() > 6 { ", ..." } else { "" };
    format!(
        "NOT by chance: {} of {} slices are more than 5 deviations off ({}{more}); check that the \
         keys were hashed as the filter records",
        out.len(),
        slices.len(),
        which.join(", "),
    )
}

/// Adjacent slices as first and last.
fn runs(places: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &place in places {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == place => *last = place,
            _ => runs.push((place, place)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_named_together() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), [(0, 2), (5, 5), (7, 8)]);
    }

    #[test]
    fn the_plot_has_a_bar_for_every_column() {
        let even = bars(&[0.5; 64], 0.5);
        let lines: Vec<&str> = even.lines().collect();
        assert_eq!(lines.len(), ROWS + 1);
        assert!(lines[ROWS - 1].ends_with(&"#".repeat(64)), "{even}");
        assert!(lines[0].ends_with('|'), "{even}");
        let band = bars(&[0.0, 1.0], 0.5);
        assert!(band.lines().take(ROWS).all(|line| line.ends_with("| #")), "{band}");
        // Nothing in it: no division by zero.
        assert!(bars(&[0.0; 3], 0.0).lines().all(|line| !line.contains('#')));
    }
}
