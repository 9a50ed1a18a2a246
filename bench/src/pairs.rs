//! Ratios of times that were measured in pairs: two builds in turns, so that a slow minute of the
//! machine falls on both.

use crate::race::median;

/// The median of the ratios of pairs, and an interval that holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// The interval of 95% or more, by the order of the ratios: it assumes nothing of their
    /// distribution. All of them if there are fewer than six.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What a rule asks for: an interval that lies above this is slower.
const SLOWER: f64 = 1.03;

impl Ratio {
    /// None without a pair.
    pub(crate) fn new(mut ratios: Vec<f64>) -> Option<Ratio> {
        ratios.sort_by(f64::total_cmp);
        let cut = dropped(ratios.len());
        let (low, high) = (*ratios.get(cut)?, ratios[ratios.len() - 1 - cut]);
        Some(Ratio { median: median(&ratios), low, high })
    }

    /// A column of tables: `1.012 [0.998, 1.025]`, and what breaks the rule is marked.
    pub(crate) fn text(&self) -> String {
        let Ratio { median, low, high } = self;
        let mark = if *low > SLOWER { "  SLOWER" } else { "" };
        format!("{median:.3} [{low:.3}, {high:.3}]{mark}")
    }
}

/// How many of so many sorted values lie below the interval of the median, and above it: the most
/// heads that so many coins show with a chance of at most 2.5%, they or fewer.
fn dropped(values: usize) -> usize {
    let mut chance = 0.5_f64.powi(values as i32);
    let mut sum = chance;
    let mut heads = 0;
    while sum <= 0.025 {
        chance *= (values - heads) as f64 / (heads + 1) as f64;
        sum += chance;
        heads += 1;
    }
    heads.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_table_of_the_sign_test() {
        // Conover, "Practical nonparametric statistics": two-sided 5%.
        for (values, cut) in [(1, 0), (5, 0), (6, 0), (11, 1), (21, 5), (25, 7)] {
            assert_eq!(dropped(values), cut, "{values}");
        }
    }

    #[test]
    fn one_odd_pair_of_eleven_moves_nothing() {
        let ratios = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0, 1.01, 0.99, 1.0, 9.0];
        let ratio = Ratio::new(ratios.to_vec()).expect("pairs");
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.0, 0.99, 1.02));
        assert_eq!(Ratio::new(Vec::new()), None);
    }
}
