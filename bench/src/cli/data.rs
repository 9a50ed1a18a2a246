//! Files of URLs, made from a counter, and which of their lines a right answer prints.
//!
//! The same walk writes a file and later checks what a program made of it, so that no copy of the
//! lines is kept: the benchmark has to stay small, see `child`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::workload::{HOSTS, mix};

/// What is in a file.
#[derive(Clone, Copy)]
pub(crate) enum Text {
    /// Lines drawn at random from 3/5 as many URLs: 48.7% of them are first occurrences,
    /// 2.43 million of 5 million, and repeats are anywhere.
    Repeating { lines: u64 },
    /// No line twice.
    Distinct { lines: u64 },
    /// Of every two lines, one that [`Text::Distinct`] of as many lines has, and one it has not.
    HalfPresent { lines: u64 },
}

impl Text {
    /// How many lines there are.
    pub(crate) fn lines(self) -> u64 {
        match self {
            Text::Repeating { lines } | Text::Distinct { lines } | Text::HalfPresent { lines } => {
                lines
            }
        }
    }

    /// How many of them a right answer prints.
    pub(crate) fn expected(self) -> u64 {
        Lines::new(self).filter(|line| line.is_expected).count() as u64
    }
}

/// One line.
pub(crate) struct Line {
    identity: u64,
    /// Whether a right answer prints it: a first occurrence, or a line that is in the filter.
    pub(crate) is_expected: bool,
}

impl Line {
    /// Replaces `text` by the URL and its newline: 40 to 80 bytes, 58 on average, as the URLs of a
    /// crawl. The last part is the identity, scrambled by a bijection.
    pub(crate) fn text(&self, text: &mut Vec<u8>) {
        const SECTIONS: [&str; 8] =
            ["p", "item", "2024/11", "users", "articles", "img", "tag", "docs/v2"];
        const WORDS: [&str; 16] = [
            "red", "garden", "of", "market", "how", "to", "river", "winter", "new", "guide",
            "open", "data", "station", "and", "history", "paper",
        ];
        const DIGITS: &[u8; 64] =
            b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let name = mix(self.identity);
        let choice = |shift: u32, mask: u64| (name >> shift & mask) as usize;
        text.clear();
        text.extend_from_slice(b"https://");
        text.extend_from_slice(HOSTS[choice(0, 7)].as_bytes());
        text.push(b'/');
        text.extend_from_slice(SECTIONS[choice(3, 7)].as_bytes());
        text.push(b'/');
        for shift in [6, 10, 14] {
            text.extend_from_slice(WORDS[choice(shift, 15)].as_bytes());
            text.push(b'-');
        }
        // All 64 bits of the name, so that no two identities share a line.
        text.extend((0..11).map(|digit| DIGITS[(name >> (6 * digit) & 63) as usize]));
        text.push(b'\n');
    }
}

/// A walk through the lines of a file.
pub(crate) struct Lines {
    text: Text,
    index: u64,
    /// One bit for each URL that can repeat: whether it has come.
    seen: Vec<u64>,
}

impl Lines {
    pub(crate) fn new(text: Text) -> Lines {
        let seen = match text {
            Text::Repeating { lines } => vec![0; pool(lines).div_ceil(64) as usize],
            Text::Distinct { .. } | Text::HalfPresent { .. } => Vec::new(),
        };
        Lines { text, index: 0, seen }
    }

    /// Writes all lines to a file.
    pub(crate) fn write(self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut text = Vec::new();
        for line in self {
            line.text(&mut text);
            file.write_all(&text)?;
        }
        // On the disk before the clock runs: otherwise the first contestants wait for it.
        file.into_inner()?.sync_all()
    }
}

impl Iterator for Lines {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let index = self.index;
        if index == self.text.lines() {
            return None;
        }
        self.index += 1;
        let (identity, is_expected) = match self.text {
            Text::Repeating { lines } => {
                let identity = mix(index) % pool(lines);
                let (word, bit) = (&mut self.seen[(identity / 64) as usize], 1 << (identity % 64));
                let is_first = *word & bit == 0;
                *word |= bit;
                (identity, is_first)
            }
            Text::Distinct { .. } => (index, true),
            Text::HalfPresent { lines } => {
                // The coin of a pair decides which of its two comes first.
                let is_present = (mix(index / 2) & 1 == 0) == index.is_multiple_of(2);
                (if is_present { mix(index) % lines } else { lines + index }, is_present)
            }
        };
        Some(Line { identity, is_expected })
    }
}

/// How many URLs repeating lines are drawn from.
fn pool(lines: u64) -> u64 {
    (lines * 3 / 5).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn texts(text: Text) -> Vec<Vec<u8>> {
        let mut buffer = Vec::new();
        Lines::new(text)
            .map(|line| {
                line.text(&mut buffer);
                buffer.clone()
            })
            .collect()
    }

    #[test]
    fn exactly_the_first_occurrences_are_expected() {
        let text = Text::Repeating { lines: 50_000 };
        let mut seen = HashSet::new();
        for (line, bytes) in Lines::new(text).zip(texts(text)) {
            assert_eq!(line.is_expected, seen.insert(bytes));
        }
        let share = text.expected() as f64 / 50_000.0;
        assert!((0.48..0.495).contains(&share), "{share}");
    }

    #[test]
    fn half_of_the_lines_are_members_of_the_distinct_ones() {
        let members: HashSet<_> = texts(Text::Distinct { lines: 50_000 }).into_iter().collect();
        assert_eq!(members.len(), 50_000);
        let text = Text::HalfPresent { lines: 50_000 };
        for (line, bytes) in Lines::new(text).zip(texts(text)) {
            assert_eq!(line.is_expected, members.contains(&bytes));
        }
        assert_eq!(text.expected(), 25_000);
    }

    #[test]
    fn lines_have_58_bytes_on_average() {
        let lines = texts(Text::Distinct { lines: 50_000 });
        assert!(lines.iter().all(|line| (40..=80).contains(&line.len())));
        let mean = lines.iter().map(Vec::len).sum::<usize>() as f64 / 50_000.0;
        assert!((57.5..59.5).contains(&mean), "{mean}");
    }
}
