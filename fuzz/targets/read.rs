//! Any bytes at all, as a stream: an error, or a filter that keeps its promises.
#![no_main]

use inbloom::Filter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A reader that gives one byte at a time must make no difference.
    struct Slow<'a>(&'a [u8]);
    impl std::io::Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let end = buffer.len().min(1);
            std::io::Read::read(&mut self.0, &mut buffer[..end])
        }
    }
    let mut rest = bytes;
    let (fast, slow) = (Filter::read_from(&mut rest), Filter::read_from(Slow(bytes)));
    match (fast, slow) {
        (Ok(fast), Ok(slow)) => {
            assert!(fast == slow, "read slowly, it is another filter");
            inbloom_fuzz::check_filter(fast);
        }
        (Err(fast), Err(slow)) => assert_eq!(fast.to_string(), slow.to_string()),
        (fast, slow) => panic!("{fast:?} at once, {slow:?} slowly"),
    }
    inbloom_fuzz::check_ways(bytes);
});
