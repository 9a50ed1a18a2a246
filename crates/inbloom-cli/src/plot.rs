//! Curves in a terminal: rates, on a logarithmic scale, over the share of the planned keys.

use crate::numbers;

const ROWS: usize = 13;
const COLUMNS: usize = 61;
/// The right end of the scale, as a share of the planned keys.
const MOST: f64 = 2.0;
/// The scale ends this many times below the target rate: what is less likely is not what a plot is
/// for.
const DEPTH: f64 = 1000.0;

/// A curve, drawn with a letter: the rate at a share of the planned keys, if it has one there.
pub struct Curve<'a> {
    pub letter: char,
    pub rate: Box<dyn Fn(f64) -> Option<f64> + 'a>,
}

/// Draws curves, with a line at the target rate and one at the planned keys. Where two of them
/// meet there is a star.
pub fn draw(curves: &[Curve], promised: f64) -> String {
    let share = |column: usize| MOST * column as f64 / (COLUMNS - 1) as f64;
    let highest = curves.iter().filter_map(|curve| {
        (0..COLUMNS).filter_map(|column| (curve.rate)(share(column))).reduce(f64::max)
    });
    let top = highest.fold(promised, f64::max).min(1.0).log10();
    let bottom = (promised / DEPTH).log10();
    let row_of = |rate: f64| {
        let height = (rate.log10() - bottom) / (top - bottom);
        ((1.0 - height) * (ROWS - 1) as f64).round()
    };

    let mut grid = [[' '; COLUMNS]; ROWS];
    let promise = row_of(promised) as usize;
    grid[promise] = ['-'; COLUMNS];
    for row in &mut grid {
        let planned = &mut row[(COLUMNS - 1) / 2];
        *planned = if *planned == '-' { '+' } else { '|' };
    }
    for curve in curves {
        let rates = (0..COLUMNS).filter_map(|at| Some((at, (curve.rate)(share(at))?)));
        for (column, rate) in rates {
            let row = row_of(rate);
            if (0.0..ROWS as f64).contains(&row) {
                let cell = &mut grid[row as usize][column];
                *cell = if cell.is_alphabetic() || *cell == '*' { '*' } else { curve.letter };
            }
        }
    }

    let mut text = String::new();
    for (number, row) in grid.iter().enumerate() {
        let label = match number {
            _ if number == promise => numbers::rate(promised),
            0 => numbers::rate(10_f64.powf(top)),
            _ if number == ROWS - 1 => numbers::rate(10_f64.powf(bottom)),
            _ => String::new(),
        };
        let cells: String = row.iter().collect();
        text.push_str(format!("{label:>9} |{cells}").trim_end());
        text.push('\n');
    }
    text.push_str(&format!("{:>9} +{}\n", "", "-".repeat(COLUMNS)));
    let quarter = (COLUMNS - 1) / 4;
    text.push_str(&format!(
        "{:>9}  {:<quarter$}{:<quarter$}{:<quarter$}{:<quarter$}200% of the planned keys\n",
        "", "0", "50%", "100%", "150%",
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve<'a>(letter: char, rate: impl Fn(f64) -> Option<f64> + 'a) -> Curve<'a> {
        Curve { letter, rate: Box::new(rate) }
    }

    #[test]
    fn a_curve_meets_the_promise_at_the_planned_keys() {
        let text = draw(&[curve('c', |share| Some(0.01 * share.powi(4)))], 0.01);
        let promise = text.lines().find(|line| line.contains("1.00%")).expect("its row");
        let at = promise.find('c').expect("the curve crosses it");
        let from_the_left = at - promise.find('|').expect("the axis") - 1;
        assert!((from_the_left as f64 - 30.0).abs() <= 3.0, "{text}");
        assert_eq!(text.lines().count(), ROWS + 2);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn curves_that_meet_are_a_star_and_one_that_ends_leaves_the_rest_empty() {
        let flat = |share: f64| (share <= 1.0).then_some(0.1);
        let text = draw(&[curve('a', flat), curve('b', flat)], 0.01);
        let first = text.lines().next().expect("a row");
        assert_eq!(first.matches('*').count(), 31, "{text}");
        assert!(!text.contains('a') || text.matches('a').count() <= 2, "{text}");
    }

    #[test]
    fn what_is_out_of_scale_is_not_drawn() {
        for rate in [0.0, 1e-300, f64::NAN] {
            assert!(!draw(&[curve('c', |_| Some(rate))], 0.5).contains('c'));
        }
    }
}
