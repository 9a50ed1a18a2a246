//! A table in blocks, each with its filter in front, as log-structured databases keep them: a lookup
//! reads only the blocks whose filter says "probably". The filters are used in place, in the bytes of
//! the table. Run it with `cargo run --release -p inbloom --example filter_per_block`.

use inbloom::{Filter, Kind, Plan};

const BLOCKS: u64 = 100;
const ROWS: u64 = 1000;

fn main() -> inbloom::Result<()> {
    // The table: for every block, the bytes of its filter. (The rows themselves are left out.)
    let plan = Plan::new(Kind::Blocked).items(ROWS).rate(0.01).build()?;
    let mut table = Vec::new();
    let mut offsets = vec![0];
    for block in 0..BLOCKS {
        let mut filter = Filter::new(plan)?;
        for row in 0..ROWS {
            filter.insert((block * ROWS + row).to_le_bytes())?;
        }
        filter.write_to(&mut table)?;
        offsets.push(table.len());
    }

    let blocks_to_read = |key: u64| -> inbloom::Result<Vec<u64>> {
        let mut blocks = Vec::new();
        for (block, range) in (0..).zip(offsets.windows(2)) {
            let filter = Filter::view(&table[range[0]..range[1]])?; // no copy
            if filter.contains(key.to_le_bytes()) {
                blocks.push(block);
            }
        }
        Ok(blocks)
    };

    let mut read_for_absent = 0;
    for key in 0..1000 {
        let present = key * 97;
        assert!(blocks_to_read(present)?.contains(&(present / ROWS)), "never a false negative");
        read_for_absent += blocks_to_read(BLOCKS * ROWS + key)?.len();
    }
    let average = read_for_absent as f64 / 1000.0;
    println!("{} bytes of filters for {} rows", table.len(), BLOCKS * ROWS);
    println!("an absent key reads {average:.2} of {BLOCKS} blocks");
    assert!(average < 1.2, "at 1% each, one block in a hundred");
    Ok(())
}
