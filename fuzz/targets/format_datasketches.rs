//! Any bytes at all as a filter of Apache DataSketches: an error, or a filter that answers and is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| inbloom_fuzz::check_format("datasketches", bytes));
