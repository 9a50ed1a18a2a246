//! How many false claims may be put down to chance.

use std::collections::BTreeMap;

/// Questions whose right answer was no, and how many were answered with yes.
#[derive(Clone, Debug)]
pub struct Claims {
    pub what: &'static str,
    pub asked: u64,
    /// How often a question may be answered wrongly.
    pub rate: f64,
    pub claimed: u64,
}

impl Claims {
    /// Whether so many cannot be chance.
    pub fn are_too_many(&self) -> bool {
        is_no_chance(self.asked as f64 * self.rate, self.claimed as f64)
    }
}

/// Whether so many events, where the mean is known, have a probability below 10^-10: some 100,000
/// groups are judged in a long run, so that chance fails one run in 100,000.
///
/// Chernoff's bound for sums of independent events: P(X >= c) <= e^(c - mean) (mean / c)^c.
fn is_no_chance(mean: f64, count: f64) -> bool {
    count > mean && count * (count / mean).ln() - (count - mean) > 10.0 * std::f64::consts::LN_10
}

/// All claims of a run, by what was asked and the rate: what is too little to be noticed in one
/// group adds up, and does not hide behind filters that err more often.
#[derive(Clone, Default)]
pub struct Tally(BTreeMap<(&'static str, u64), Sum>);

#[derive(Clone, Copy, Default)]
struct Sum {
    asked: u64,
    mean: f64,
    claimed: u64,
}

/// The bits of a rate, as a name for it: positive numbers have the order of their bits. The rates
/// of CF.* depend on how often a filter has grown, and are one.
fn class(rate: f64) -> u64 {
    if rate > 0.01 { 1.0f64.to_bits() } else { rate.to_bits() }
}

impl Tally {
    pub fn add(&mut self, claims: &Claims) {
        if claims.asked == 0 {
            return;
        }
        let sum = self.0.entry((claims.what, class(claims.rate))).or_default();
        sum.asked += claims.asked;
        sum.mean += claims.asked as f64 * claims.rate;
        sum.claimed += claims.claimed;
    }

    pub fn add_all(&mut self, other: &Tally) {
        for (key, sum) in &other.0 {
            let own = self.0.entry(*key).or_default();
            own.asked += sum.asked;
            own.mean += sum.mean;
            own.claimed += sum.claimed;
        }
    }

    /// Err: what was claimed more often than chance allows.
    pub fn check(&self) -> Result<(), String> {
        let is_wrong = |sum: &Sum| is_no_chance(sum.mean, sum.claimed as f64);
        match self.0.iter().find(|(_, sum)| is_wrong(sum)) {
            None => Ok(()),
            Some((key, sum)) => {
                Err(format!("over all rounds, more than chance: {}", line(key, sum)))
            }
        }
    }

    pub fn report(&self) -> String {
        let lines = self.0.iter().map(|(key, sum)| format!("  {}", line(key, sum)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn line((what, rate): &(&'static str, u64), sum: &Sum) -> String {
    let Sum { asked, mean, claimed } = sum;
    let filters = match f64::from_bits(*rate) {
        1.0 => "CF.*".to_owned(),
        rate => format!("filters of rate {rate}"),
    };
    format!("{what}, {filters}: {claimed} of {asked} were claimed, the mean is {mean:.1} at most")
}

#[test]
fn what_is_no_chance_is_told_from_what_is() {
    for (mean, most) in [(0.0001, 2.0), (0.01, 4.0), (2.0, 17.0), (1000.0, 1220.0)] {
        assert!(!is_no_chance(mean, most), "{most} where {mean} are the mean");
        assert!(is_no_chance(mean, most + 1.0 + most / 20.0), "more than {most}, mean {mean}");
    }
    assert!(is_no_chance(0.0, 1.0) && !is_no_chance(0.0, 0.0));
}
