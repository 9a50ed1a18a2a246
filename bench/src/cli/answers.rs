//! Whether an output is right. Filters may err, in one direction and at a target rate.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use inbloom::Hasher;

use super::child::Program;
use super::data::{Lines, Text};

/// How often a program may err.
#[derive(Clone, Copy)]
pub(crate) enum Promise {
    /// Never.
    Exact,
    /// A new line is taken for one that is there, at most at this rate.
    Rate(f64),
}

impl Promise {
    /// The errors that so many chances for one exceed with a probability below 1e-9.
    pub(crate) fn most_errors(self, chances: u64) -> u64 {
        match self {
            Promise::Exact => 0,
            Promise::Rate(rate) => poisson_bound(chances as f64 * rate),
        }
    }
}

/// The smallest k that a Poisson variable exceeds with a probability below 1e-9, or a little more:
/// by Chernoff, P(X >= k) <= e^-mean (e mean / k)^k for k above the mean.
fn poisson_bound(mean: f64) -> u64 {
    let exponent = |k: f64| k * (k / mean).ln() - k + mean;
    let mut k = mean.ceil().max(1.0);
    while exponent(k + 1.0) < 1e9_f64.ln() {
        k += 1.0;
    }
    k as u64
}

/// Tells what is noteworthy about an output that is right, and what is wrong with another.
pub(crate) struct Checker(Box<Check>);

type Check = dyn Fn(&Path) -> Result<String, String>;

impl Checker {
    pub(crate) fn check(&self, output: &Path) -> Result<String, String> {
        (self.0)(output)
    }

    /// Nothing is checked.
    pub(crate) fn anything() -> Checker {
        Checker(Box::new(|_| Ok(String::new())))
    }

    /// First occurrences in order, of which some may be lost.
    pub(crate) fn deduplicated(text: Text, promise: Promise) -> Checker {
        Checker(Box::new(move |output| {
            let Printed { missing, extra, expected } = printed(text, output)?;
            let most = promise.most_errors(expected);
            if extra > 0 {
                return Err(format!("{extra} lines were printed again"));
            }
            if missing > most {
                return Err(format!("{missing} lines are lost, expected at most {most}"));
            }
            Ok(note(missing, "lost", promise, expected))
        }))
    }

    /// The lines that are in a filter, in order, with some that are not.
    pub(crate) fn selected(text: Text, promise: Promise) -> Checker {
        Checker(Box::new(move |output| {
            let Printed { missing, extra, expected } = printed(text, output)?;
            let absent = text.lines() - expected;
            let most = promise.most_errors(absent);
            if missing > 0 {
                return Err(format!("{missing} lines that are in the filter are missing"));
            }
            if extra > most {
                return Err(format!("{extra} lines are not in the filter, expected <= {most}"));
            }
            Ok(note(extra, "false positives", promise, absent))
        }))
    }

    /// The number of lines that are in a filter, and of some that are not.
    pub(crate) fn counted(text: Text, promise: Promise) -> Checker {
        Checker(Box::new(move |output| {
            let expected = text.expected();
            let absent = text.lines() - expected;
            let most = expected + promise.most_errors(absent);
            let words = fs::read_to_string(output).map_err(|error| error.to_string())?;
            match words.trim().parse() {
                Ok(count) if (expected..=most).contains(&count) => {
                    Ok(note(count - expected, "false positives", promise, absent))
                }
                _ => Err(format!("'{}', expected {expected} to {most}", words.trim())),
            }
        }))
    }

    /// First occurrences in the order of their bytes.
    pub(crate) fn sorted(text: Text) -> Checker {
        Checker(Box::new(move |output| {
            let mut expected = Sum::default();
            let mut bytes = Vec::new();
            for line in Lines::new(text).filter(|line| line.is_expected) {
                line.text(&mut bytes);
                expected.add(&bytes);
            }
            let mut found = Sum::default();
            let mut last = Vec::new();
            let mut reader = Reader::open(output)?;
            while let Some(line) = reader.next()? {
                if line <= last.as_slice() {
                    return Err(format!("line {} is not above the last", found.count + 1));
                }
                found.add(line);
                last.clear();
                last.extend_from_slice(line);
            }
            if found != expected {
                return Err(format!(
                    "{} lines, expected {}, or others than these",
                    found.count, expected.count
                ));
            }
            Ok(String::new())
        }))
    }

    /// Asks another program about what was made, and checks its answer.
    pub(crate) fn of_file(ask: Program, answer: PathBuf, checker: Checker) -> Checker {
        Checker(Box::new(move |_| {
            ask.run(&answer)?;
            checker.check(&answer)
        }))
    }
}

/// `3 lost, promised 2.43`, the mean at the target rate; nothing where none can be.
fn note(errors: u64, name: &str, promise: Promise, lines: u64) -> String {
    match promise {
        Promise::Rate(rate) if lines > 0 => {
            let mean = lines as f64 * rate;
            let decimals = if mean < 100.0 { 2 } else { 0 };
            format!("{errors} {name}, promised {mean:.decimals$}")
        }
        _ => String::new(),
    }
}

/// What an output has of the input.
struct Printed {
    /// Lines that a right answer prints, of which...
    expected: u64,
    /// ... so many were not printed,
    missing: u64,
    /// and others that were.
    extra: u64,
}

/// Walks through input and output at once: the output must be lines of the input in their order.
fn printed(text: Text, output: &Path) -> Result<Printed, String> {
    let mut printed = Printed { expected: 0, missing: 0, extra: 0 };
    let mut reader = Reader::open(output)?;
    let mut next = reader.next()?.map(<[u8]>::to_vec);
    let mut bytes = Vec::new();
    for line in Lines::new(text) {
        line.text(&mut bytes);
        let is_printed = next.as_ref() == Some(&bytes);
        if is_printed {
            let buffer = next.get_or_insert_default();
            match reader.next()? {
                Some(line) => {
                    buffer.clear();
                    buffer.extend_from_slice(line);
                }
                None => next = None,
            }
        }
        printed.expected += u64::from(line.is_expected);
        printed.missing += u64::from(line.is_expected && !is_printed);
        printed.extra += u64::from(!line.is_expected && is_printed);
    }
    match next {
        None => Ok(printed),
        Some(line) => Err(format!(
            "line {} of the output, '{}', is not in the input, or not there in the input's order",
            reader.number - 1,
            String::from_utf8_lossy(&line).trim_end(),
        )),
    }
}

/// Reads lines with their newlines, without a copy for each.
struct Reader {
    file: BufReader<File>,
    line: Vec<u8>,
    /// Of the line that is read next, from 1.
    number: u64,
}

impl Reader {
    fn open(path: &Path) -> Result<Reader, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Reader { file: BufReader::new(file), line: Vec::new(), number: 1 })
    }

    fn next(&mut self) -> Result<Option<&[u8]>, String> {
        self.line.clear();
        let length =
            self.file.read_until(b'\n', &mut self.line).map_err(|error| error.to_string())?;
        self.number += u64::from(length > 0);
        Ok((length > 0).then_some(&self.line))
    }
}

/// Equal for equal sets of lines in any order, and for others with a probability of 2^-128.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    place: u64,
    print: u64,
}

impl Sum {
    fn add(&mut self, line: &[u8]) {
        let digest = Hasher::default().digest(line);
        self.count += 1;
        self.place = self.place.wrapping_add(digest.place);
        self.print = self.print.wrapping_add(digest.print);
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    const TEXT: Text = Text::Repeating { lines: 1000 };

    /// The verdict of a checker about these lines.
    fn verdict(name: &str, checker: &Checker, lines: &[Vec<u8>]) -> Result<String, String> {
        let path = env::temp_dir().join(format!("inbloom-bench-{name}-{}", std::process::id()));
        fs::write(&path, lines.concat()).expect("a temporary file");
        let verdict = checker.check(&path);
        fs::remove_file(path).expect("it was written");
        verdict
    }

    fn right() -> Vec<Vec<u8>> {
        Lines::new(TEXT)
            .filter(|line| line.is_expected)
            .map(|line| {
                let mut bytes = Vec::new();
                line.text(&mut bytes);
                bytes
            })
            .collect()
    }

    #[test]
    fn what_is_lost_repeated_or_out_of_order_is_seen() {
        let exact = Checker::deduplicated(TEXT, Promise::Exact);
        let lossy = Checker::deduplicated(TEXT, Promise::Rate(1e-3));
        let check = |checker, lines: &[Vec<u8>]| verdict("ordered", checker, lines);
        let lines = right();
        assert_eq!(check(&exact, &lines), Ok(String::new()));

        let mut lost = lines.clone();
        lost.remove(17);
        assert!(check(&exact, &lost).is_err());
        assert_eq!(check(&lossy, &lost), Ok("1 lost, promised 0.48".to_string()));
        assert!(check(&lossy, &lines[100..]).is_err());

        let mut swapped = lines.clone();
        swapped.swap(3, 4);
        assert!(check(&lossy, &swapped).is_err());

        let all: Vec<Vec<u8>> = Lines::new(TEXT)
            .map(|line| {
                let mut bytes = Vec::new();
                line.text(&mut bytes);
                bytes
            })
            .collect();
        assert!(check(&lossy, &all).is_err());
    }

    #[test]
    fn sorted_lines_are_right_only_if_none_is_lost_or_changed() {
        let checker = Checker::sorted(TEXT);
        let check = |lines: &[Vec<u8>]| verdict("sorted", &checker, lines);
        let mut lines = right();
        assert!(check(&lines).is_err());
        lines.sort();
        assert_eq!(check(&lines), Ok(String::new()));
        assert!(check(&lines[1..]).is_err());
        lines[0] = b"a\n".to_vec();
        assert!(check(&lines).is_err());
    }

    #[test]
    fn the_poisson_bound_is_near_the_deviations_that_it_stands_for() {
        // By summation it is 9 at a mean of 0.5 and 16 at 2.4; a large mean is exceeded by 6
        // deviations.
        assert!((9..=11).contains(&poisson_bound(0.5)), "{}", poisson_bound(0.5));
        assert!((16..=18).contains(&poisson_bound(2.4)), "{}", poisson_bound(2.4));
        let large = poisson_bound(50_000.0);
        assert!((51_300..=51_500).contains(&large), "{large}");
    }
}
