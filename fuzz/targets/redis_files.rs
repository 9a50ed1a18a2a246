//! Files that hold filters of RedisBloom, from anybody's bytes: RDB files, append-only files, streams of
//! LOADCHUNK, joined chunks. What was read must be written and read again as the same.
#![no_main]

use inbloom::interop::redisbloom::payload::{self, Restored};
use inbloom::interop::redisbloom::{
    from_chunks, is_chunks, load_commands, missing_behind_header, stored,
};
use libfuzzer_sys::fuzz_target;

/// Of every filter here, in bytes.
const LIMIT: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let chunks = from_chunks(bytes);
    if let Ok(filter) = &chunks {
        assert!(is_chunks(bytes) && missing_behind_header(bytes).is_none());
        again(filter);
    }
    let Ok(filters) = stored(bytes) else { return };
    for filter in filters {
        if let Ok(filter) = filter.restore(LIMIT) {
            again(&filter);
        }
    }
});

fn again(filter: &Restored) {
    let mut stream = Vec::new();
    let dumped = match filter {
        Restored::Bloom(bloom) => {
            load_commands(bloom, b"name", &mut stream).unwrap();
            payload::encode(bloom).unwrap()
        }
        Restored::Cuckoo(cuckoo) => {
            load_commands(cuckoo, b"name", &mut stream).unwrap();
            payload::encode(cuckoo).unwrap()
        }
    };
    assert_eq!(&payload::decode(&dumped, u64::MAX).unwrap(), filter);
    // Older links do not fill their last word; a header says nothing of that, and is refused.
    if let Ok(loaded) = stored(&stream).unwrap()[0].restore(u64::MAX) {
        assert_eq!(&loaded, filter);
    }
}
