//! How many records files hold, without keeping any: each core counts in a part of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use memchr::memchr_iter;

use crate::blocks::{Block, Reader, Records};
use crate::input::{Encoding, Input};
use crate::progress::Progress;

/// Bytes read at once: a block that stays in the processor's cache.
const AT_ONCE: usize = 128 << 10;

/// Where a buffer begins matters: the kernel copies whole pages, and to 1 to 31 bytes behind the
/// beginning of one it takes 234 to 320 ms for 429 MB, to anywhere else 67 to 81 (Zen 3,
/// 2026-11-16). Allocators like to return 16.
const PAGE: usize = 4096;

/// Counts the records of regular files.
pub fn count(
    inputs: &[Input],
    encoding: Encoding,
    records: Records,
    threads: usize,
    progress: &mut Progress,
) -> Result<u64> {
    let mut count = 0;
    // Whether a newline ends a record of CSV depends on all that stands before it.
    let in_any_order = records.csv.is_none() && !records.header;
    for input in inputs {
        count += match input {
            Input::File(path)
                if in_any_order && (encoding == Encoding::Plain || !input.is_special()?) =>
            {
                let file = File::open(path).with_context(|| input.cannot_open())?;
                in_parts(&file, records.terminator, threads, progress)
                    .with_context(|| input.cannot_read())?
            }
            // What is compressed can only be read from its beginning.
            _ => in_order(input, encoding, records, progress)?,
        };
    }
    Ok(count)
}

fn in_parts(
    file: &File,
    terminator: u8,
    threads: usize,
    progress: &mut Progress,
) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let part = length.div_ceil(threads as u64).max(1).next_multiple_of(AT_ONCE as u64);
    let read = progress.bytes();
    let terminators: u64 = thread::scope(|scope| {
        let part_from = |start: u64| start..length.min(start + part);
        let starts = (0..length).step_by(usize::try_from(part).unwrap_or(usize::MAX)).skip(1);
        let others: Vec<_> = starts
            .map(|start| {
                let read = &read;
                scope.spawn(move || terminators(file, part_from(start), terminator, read, || ()))
            })
            .collect();
        let own = terminators(file, part_from(0), terminator, &read, || progress.step(0));
        let others = others.into_iter().map(|other| other.join().expect("counting cannot panic"));
        others.chain([own]).sum::<io::Result<u64>>()
    })?;
    let mut last = [terminator];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(terminators + u64::from(last != [terminator]))
}

/// Counts in a range of a file. One that is cut short meanwhile has no more there.
fn terminators(
    file: &File,
    range: std::ops::Range<u64>,
    terminator: u8,
    bytes_read: &AtomicU64,
    mut step: impl FnMut(),
) -> io::Result<u64> {
    let mut room = vec![0; AT_ONCE + PAGE];
    let aligned = room.as_ptr().align_offset(PAGE);
    let buffer = &mut room[aligned..];
    let (mut at, mut found) = (range.start, 0);
    while at < range.end {
        let most = (range.end - at).min(AT_ONCE as u64) as usize;
        let read = match file.read_at(&mut buffer[..most], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        found += memchr_iter(terminator, &buffer[..read]).count() as u64;
        at += read as u64;
        bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        step();
    }
    Ok(found)
}

fn in_order(
    input: &Input,
    encoding: Encoding,
    records: Records,
    progress: &mut Progress,
) -> Result<u64> {
    let mut reader = Reader::new(std::slice::from_ref(input), encoding, records);
    let mut block = Block::default();
    let mut count = 0;
    while let Some(read) = reader.read(&mut block) {
        let before = count + u64::from(records.header);
        read.map_err(|unread| unread.into_error(input, &records, before))?;
        count += block.count();
        progress.step(0);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::progress::Beside;

    #[test]
    fn counting_agrees_with_reading_however_it_is_divided() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        let long = "a line of some bytes\n".repeat(30_000);
        let records = Records { terminator: b'\n', csv: None, header: false, longest: 1 << 20 };
        let cases = ["", "\n", "a", "a\n", "a\n\nb", "a\n\nb\n", &long, &long[..long.len() - 1]];
        for text in cases {
            fs::write(&path, text).expect("writing a temporary file");
            let inputs = [Input::File(path.clone())];
            for threads in [1, 2, 3, 16] {
                let reader = Reader::new(&inputs, Encoding::Plain, records);
                let mut progress = Progress::new("counting", &inputs, &reader, Beside::Nothing);
                let count = count(&inputs, Encoding::ByMagic, records, threads, &mut progress);
                let lines = text.lines().count() as u64;
                assert_eq!(count.expect("it can be read"), lines, "{threads}");
                let count = in_order(&inputs[0], Encoding::ByMagic, records, &mut progress);
                assert_eq!(count.expect("it can be read"), lines);
            }
        }
    }
}
