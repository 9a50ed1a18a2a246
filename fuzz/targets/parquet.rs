//! Parquet files and split-block filters from anybody's bytes: footers, headers, values. A filter that was
//! read must be written to the same bytes and answer for what is inserted.
#![no_main]

use std::io::Cursor;

use inbloom::interop::parquet::Metadata;
use inbloom::interop::{Container, Format};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let format: Format = "parquet".parse().unwrap();
    let container = Container::from(format);
    if let Ok(filter) = container.read(bytes) {
        assert!(filter.bytes() <= bytes.len() as u64);
        assert_eq!(Format::recognize(bytes).unwrap(), Some(format));
        let mut copy = filter.clone();
        copy.insert(bytes).unwrap();
        assert!(copy.contains(bytes));
        let mut written = Vec::new();
        filter.write_as(container, &mut written).unwrap();
        let again = container.read(&written).unwrap();
        assert!(again == filter);
    }
    // A footer alone is the more interesting part: the fuzzer need not find the magic.
    let length = (bytes.len() as u32).to_le_bytes();
    let file = [b"PAR1", bytes, &length, b"PAR1"].concat();
    for file in [bytes, &file] {
        let Ok(metadata) = Metadata::read(Cursor::new(file)) else { continue };
        for (at, column) in metadata.columns.iter().enumerate() {
            let mut value = Vec::new();
            let _ = column.value_type.encode(&bytes[..bytes.len().min(40)], &mut value);
            for group in &metadata.row_groups {
                if let Ok(Some(filter)) = group.chunks[at].read_filter(Cursor::new(file)) {
                    assert!(filter.bytes() <= file.len() as u64);
                    let _ = filter.contains(&value);
                }
            }
        }
    }
});
