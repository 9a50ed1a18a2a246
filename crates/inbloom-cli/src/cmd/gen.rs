//! `inbloom gen`: keys to try things with.
//!
//! Line i of a list is made from the number 2i, and of its complement (`--absent`) from 2i + 1. A
//! bijection that the seed chooses turns the number into an id, and the id is written in full into
//! the URL, so no two lines of either list are the same, without any memory of what was printed.
//! Everything else in the URL (site, path, ending) is drawn from the id.
//!
//! ```text
//! https://www.bluelamp.org  /shop/item?id=  k3x90fa  .html
//! site (one of 1024)        path (of 256)   id       ending
//! ```
//!
//! The id can be read back: it is what follows the last `/`, `=` or `-`, up to an ending, which has
//! none of them. Its length tells how it is written: 7 digits to the base 36 or 10 to the base 10
//! for one of 32 bits, as the first two billion lines have it, and 13 to the base 36 for one of 64.

use std::io;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use clap::ValueEnum;
use inbloom::internals::splitmix::finalize as mix;
use inbloom_server::units::parse_count;

use crate::numbers::exact;
use crate::output;
use crate::pipeline::{self, in_order};
use crate::pipes;

/// Generate distinct URLs as test keys, and URLs that are certainly not among them
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// What to print
    #[arg(value_enum)]
    what: What,

    /// Number of lines: 1000000, 10e9, 2.5M
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = parse_count)]
    items: u64,

    /// Skip this many lines at the start of the list
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    skip: u64,

    /// Seed of the list: the same seed gives the same lines
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Print similar URLs that are not in any list of this seed
    #[arg(long)]
    absent: bool,

    /// Threads that make lines [default: one per core]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// URLs of 20 to 64 bytes
    Urls,
}

const AFTER_HELP: &str = "\
All lines are distinct. A longer list of the same seed begins with the shorter one. Lists of two
seeds may share a few URLs. For keys that are certainly not in a filter, use --absent with the seed
that the filter was built from.

Examples:
  inbloom gen urls -n 10M > urls.txt
  inbloom gen urls -n 10M | inbloom build -o seen.ib -n 10M -p 0.001
  inbloom gen urls -n 1M --absent | inbloom check -c seen.ib    about 1,000: the rate is kept
  inbloom gen urls -n 1M --seed 7 | tail -n 1000                1,000 keys of another list
  inbloom gen urls -n 1000 --skip 999000 --seed 7               the same, at once

Exit status:
  0  all lines were printed, or the reader of the output ended
  2  an error";

/// The numbers of both lists together are those of 64 bits.
const MOST: u64 = 1 << 63;

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.items.saturating_add(args.skip) > MOST {
        bail!(
            "-n {} after --skip {} is too large: there are only {} URLs",
            exact(args.items),
            exact(args.skip),
            exact(MOST),
        );
    }
    match args.what {
        What::Urls => print_urls(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Lines that a thread makes, and that are printed, at once: 256 KiB on average.
const AT_ONCE: u64 = 6000;

/// Threads make batches of lines; they are printed in order, so that the number of threads does not
/// show.
fn print_urls(args: &Args) -> Result<()> {
    pipes::enlarge(io::stdout());
    let urls = Urls::new(args.seed);
    let end = args.skip + args.items;
    // Batches that were printed: their memory is used again.
    let spares: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let spares = || spares.lock().unwrap_or_else(PoisonError::into_inner);
    let make = |batch: u64| {
        let spare = spares().pop();
        let mut text = spare.unwrap_or_else(|| vec![0; AT_ONCE as usize * LONGEST + LINE]);
        let first = args.skip + batch * AT_ONCE;
        let mut used = 0;
        for index in first..end.min(first + AT_ONCE) {
            let number = index * 2 + u64::from(args.absent);
            used += urls.write(number, (&mut text[used..used + LINE]).try_into().expect("as long"));
        }
        Ok((text, used))
    };
    let batches = args.items.div_ceil(AT_ONCE);
    let threads =
        pipeline::threads(args.threads).min(usize::try_from(batches).unwrap_or(usize::MAX));
    in_order(0..batches, threads, make, |_, (text, used)| {
        output::print(&text[..used])?;
        spares().push(text);
        Ok(())
    })
}

/// The URLs of one seed.
struct Urls {
    key: u64,
    sites: Vec<Piece>,
    paths: Vec<Piece>,
    endings: Vec<Piece>,
}

/// Room for a line: each of its four pieces is written whole, with what lies behind its end.
const LINE: usize = 128;
/// Bytes of the longest line, with its newline.
const LONGEST: usize = 65;

/// A part of a URL. All are copied as 32 bytes, which takes one or two instructions, while a copy
/// of their own length is a call.
#[derive(Clone, Copy)]
struct Piece {
    bytes: [u8; 32],
    len: usize,
}

const SITES: u64 = 1024;
const PATHS: u64 = 256;

impl Urls {
    fn new(seed: u64) -> Urls {
        let endings = ["\n", "\n", "\n", "\n", ".html\n", ".html\n", ".php\n", "#top\n"];
        Urls {
            key: mix(seed.wrapping_add(1)),
            sites: (0..SITES).map(|site| Piece::new(&site_name(mix(site)))).collect(),
            paths: (0..PATHS).map(|path| Piece::new(&path_name(mix(path)))).collect(),
            endings: endings.iter().map(|ending| Piece::new(ending)).collect(),
        }
    }

    /// Writes the URL of a number and a newline, and returns their length.
    fn write(&self, number: u64, line: &mut [u8; LINE]) -> usize {
        let (id, is_short) = self.id(number);
        // What is drawn must not depend on the list: with the seed in it, sites differ by seed.
        let draw = mix(id ^ self.key);
        let part = |shift: u32, n: u64| (draw >> shift) % n;
        // The product of two draws is small more often than large: some sites have most pages.
        let site = part(0, SITES) * part(10, SITES) / SITES;
        let mut at = self.sites[site as usize].write(line, 0);
        at = self.paths[part(20, PATHS) as usize].write(line, at);
        at = match (is_short, part(28, 4)) {
            (true, 0) => write_pairs::<10, 100, 5>(id, line, at),
            (true, _) => write_seven(id, line, at),
            // 13 digits, in two halves that do not wait for each other.
            (false, _) => {
                let at = write_seven(id / 36_u64.pow(6), line, at);
                write_pairs::<36, 1296, 3>(id % 36_u64.pow(6), line, at)
            }
        };
        self.endings[part(30, 8) as usize].write(line, at)
    }

    /// The id of a number, and whether it has 32 bits, as those of small numbers have.
    fn id(&self, number: u64) -> (u64, bool) {
        match u32::try_from(number) {
            Ok(number) => (u64::from(mix_short(number ^ self.key as u32)), true),
            Err(_) => (mix(number ^ self.key), false),
        }
    }
}

impl Piece {
    fn new(text: &str) -> Piece {
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Piece { bytes, len: text.len() }
    }

    /// Writes the piece and returns where it ends.
    #[inline]
    fn write(&self, line: &mut [u8; LINE], at: usize) -> usize {
        line[at..at + 32].copy_from_slice(&self.bytes);
        at + self.len
    }
}

/// All numbers of two digits to a base, whose square `COUNT` is.
struct Pairs<const BASE: usize, const COUNT: usize>;

impl<const BASE: usize, const COUNT: usize> Pairs<BASE, COUNT> {
    const TEXT: [[u8; 2]; COUNT] = {
        let mut text = [[0; 2]; COUNT];
        let mut number = 0;
        while number < COUNT {
            text[number] = [DIGITS[number / BASE], DIGITS[number % BASE]];
            number += 1;
        }
        text
    };
}

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Writes the last `PAIRS` pairs of digits of a number and returns where they end. Every pair is
/// divided out of the whole number, so that none waits for another.
#[inline]
fn write_pairs<const BASE: usize, const COUNT: usize, const PAIRS: usize>(
    number: u64,
    line: &mut [u8; LINE],
    at: usize,
) -> usize {
    let (digits, _) = line[at..at + 2 * PAIRS].as_chunks_mut::<2>();
    for (pair, digits) in digits.iter_mut().rev().enumerate() {
        let above = number / (COUNT as u64).pow(pair as u32);
        *digits = Pairs::<BASE, COUNT>::TEXT[(above % COUNT as u64) as usize];
    }
    at + 2 * PAIRS
}

/// Writes a number below 36^7 as seven digits to the base 36 and returns where they end.
#[inline]
fn write_seven(number: u64, line: &mut [u8; LINE], at: usize) -> usize {
    line[at] = DIGITS[(number / 36_u64.pow(6)) as usize % 36];
    write_pairs::<36, 1296, 3>(number, line, at + 1)
}

/// The finalizer of MurmurHash3 (Appleby, 2011): a bijection.
fn mix_short(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// A scheme and a host, 12 to 30 bytes.
fn site_name(mut draw: u64) -> String {
    let scheme = pick(&mut draw, &["http", "https", "https", "https"]);
    let (first, second) = (pick(&mut draw, &FIRST), pick(&mut draw, &SECOND));
    let ending = pick(&mut draw, &["com", "com", "com", "org", "net", "de", "fr", "io", "co.uk"]);
    // One in eight is a shortener, as short as they come.
    match draw % 8 {
        0 => format!("{scheme}://{}.{}", &first[..2], pick(&mut draw, &["ly", "io", "co"])),
        _ => {
            let host = pick(&mut draw, &["", "", "www.", "www.", "www.", "m.", "blog.", "shop."]);
            format!("{scheme}://{host}{first}{second}.{ending}")
        }
    }
}

/// A path up to the id, 1 to 16 bytes. It ends in a separator, see the top of this file.
fn path_name(mut draw: u64) -> String {
    let section = pick(&mut draw, &["news", "blog", "shop", "wiki", "img", "user", "en", "p"]);
    let word =
        pick(&mut draw, &["red", "best", "new", "guide", "tour", "photo", "review", "cheap"]);
    let number = draw >> 32;
    match draw % 8 {
        0 => "/".to_string(),
        1 => format!("/{section}/"),
        2 => format!("/{section}/{word}/"),
        3 => format!("/{section}/{word}-"),
        4 => format!("/{}/{:02}/", 1998 + number % 29, 1 + number % 12),
        5 => format!("/{}/{}/", number % 10, number % 10_000),
        6 => format!("/{section}/item?id="),
        _ => format!("/{section}?page={}&q=", number % 100),
    }
}

/// One of the words, and what is left of the draw.
fn pick<'a>(draw: &mut u64, words: &[&'a str]) -> &'a str {
    let count = words.len() as u64;
    let word = words[(*draw % count) as usize];
    *draw /= count;
    word
}

const FIRST: [&str; 16] = [
    "blue", "green", "north", "silver", "open", "daily", "quick", "happy", "river", "stone",
    "city", "paper", "cloud", "moon", "maple", "garden",
];
const SECOND: [&str; 16] = [
    "lamp", "bird", "news", "shop", "books", "trips", "base", "kit", "works", "post", "forum",
    "house", "lab", "map", "art", "box",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn url(urls: &Urls, number: u64) -> String {
        let mut line = [0; LINE];
        let length = urls.write(number, &mut line);
        let text = std::str::from_utf8(&line[..length]).expect("ASCII");
        text.strip_suffix('\n').expect("a line").to_string()
    }

    /// Numbers of short ids, of long ids, and on both sides of the border between them.
    fn numbers() -> impl Iterator<Item = u64> {
        let short = u64::from(u32::MAX) + 1;
        [0, short - 1000, short, 1 << 40, u64::MAX - 1000].into_iter().flat_map(|n| n..=n + 1000)
    }

    #[test]
    fn the_id_can_be_read_back_from_the_url() {
        let urls = Urls::new(5);
        for number in numbers() {
            let url = url(&urls, number);
            let (_, rest) = url.rsplit_once(['/', '=', '-']).expect("a separator");
            let id = rest.split(['.', '#']).next().expect("text before an ending");
            let base = if id.len() == 10 { 10 } else { 36 };
            let id = (u64::from_str_radix(id, base).expect("an id"), id.len() < 13);
            assert_eq!(id, urls.id(number), "{url}");
        }
    }

    #[test]
    fn digits_are_those_of_the_division_by_the_base() {
        let digits = |mut number: u64, base: u64, length: usize| {
            let mut text = vec![b'0'; length];
            for digit in text.iter_mut().rev() {
                *digit = DIGITS[(number % base) as usize];
                number /= base;
            }
            text
        };
        for number in [0, 1, 35, 36, 1295, 1296, 78_364_164_095, u64::from(u32::MAX)] {
            for number in [number, mix(number) % 36_u64.pow(7)] {
                let mut line = [0; LINE];
                assert_eq!(write_seven(number, &mut line, 3), 10);
                assert_eq!(line[3..10], digits(number, 36, 7), "{number}");
                assert_eq!(write_pairs::<10, 100, 5>(number, &mut line, 3), 13);
                assert_eq!(line[3..13], digits(number, 10, 10), "{number}");
            }
        }
    }

    #[test]
    fn urls_have_20_to_64_bytes() {
        let urls = Urls::new(0);
        for number in numbers() {
            let url = url(&urls, number);
            assert!((20..=64).contains(&url.len()), "{url}: {}", url.len());
        }
        let longest = |pieces: &[Piece]| pieces.iter().map(|piece| piece.len).max().unwrap_or(0);
        let shortest = |pieces: &[Piece]| pieces.iter().map(|piece| piece.len).min().unwrap_or(0);
        let pieces = [&urls.sites, &urls.paths, &urls.endings];
        // Of any seed: the pieces are the same. An ending has the newline in it.
        assert!(pieces.map(|list| longest(list)).iter().sum::<usize>() + 13 <= LONGEST);
        assert!(pieces.map(|list| shortest(list)).iter().sum::<usize>() - 1 + 7 >= 20);
    }
}
