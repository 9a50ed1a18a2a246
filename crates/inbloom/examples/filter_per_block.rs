//! A table in blocks, each with its filter in front, as log-structured databases keep them: a
//! lookup reads only the blocks whose filter says "probably". The filters are used in place, in the
//! bytes of the table. Run it with `cargo run --release -p inbloom --example filter_per_block`.

use inbloom::{BloomFilter, Filter};

const BLOCKS: u64 = 100;
const ROWS: u64 = 1000;
const LOOKUPS: u64 = 1000;
const RATE: f64 = 0.01;

struct Outcome {
    filter_bytes: usize,
    /// Lookups of rows that did not read the block in which they are.
    missed: u64,
    /// Blocks that were read for keys that are in none.
    read_for_absent: usize,
}

fn run() -> inbloom::Result<Outcome> {
    // The table: for every block, the bytes of its filter. (The rows themselves are left out.)
    let mut table = Vec::new();
    let mut offsets = vec![0];
    for block in 0..BLOCKS {
        let mut filter = BloomFilter::new(ROWS as usize, RATE);
        filter.extend(block * ROWS..(block + 1) * ROWS);
        filter.as_filter().write_to(&mut table)?;
        offsets.push(table.len());
    }

    let blocks_to_read = |key: u64| -> inbloom::Result<Vec<u64>> {
        let mut blocks = Vec::new();
        for (block, range) in (0..).zip(offsets.windows(2)) {
            let filter = Filter::view(&table[range[0]..range[1]])?; // no copy
            if filter.contains(key) {
                blocks.push(block);
            }
        }
        Ok(blocks)
    };

    let (mut missed, mut read_for_absent) = (0, 0);
    for key in 0..LOOKUPS {
        let present = key * 97;
        missed += u64::from(!blocks_to_read(present)?.contains(&(present / ROWS)));
        read_for_absent += blocks_to_read(BLOCKS * ROWS + key)?.len();
    }
    Ok(Outcome { filter_bytes: table.len(), missed, read_for_absent })
}

fn main() -> inbloom::Result<()> {
    let outcome = run()?;
    let average = outcome.read_for_absent as f64 / LOOKUPS as f64;
    println!("{} bytes of filters for {} rows", outcome.filter_bytes, BLOCKS * ROWS);
    println!(
        "an absent key reads {average:.2} of {BLOCKS} blocks; rows missed: {}",
        outcome.missed
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_key_reads_one_block_in_a_hundred_and_no_row_is_missed() {
        let outcome = run().unwrap();
        assert_eq!(outcome.missed, 0);
        let expected = (LOOKUPS * BLOCKS) as f64 * RATE;
        let most = expected + 5.0 * expected.sqrt();
        assert!((outcome.read_for_absent as f64) < most, "{} reads", outcome.read_for_absent);
    }
}
