//! Any bytes at all, in place and at any alignment: an error, or answers.
#![no_main]

use inbloom::OpenOptions;
use inbloom::internals::format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses the alignment, the rest is the file.
    let Some((offset, file)) = bytes.split_first() else { return };
    let mut buffer = vec![0u8; file.len() + 128];
    let start = buffer.as_ptr().align_offset(64) + usize::from(offset % 64);
    let place = &mut buffer[start..][..file.len()];
    place.copy_from_slice(file);

    inbloom_fuzz::check_ways(place);
    let here = OpenOptions::new().secret(&inbloom_fuzz::KEY).view(place);
    let there = OpenOptions::new().secret(&inbloom_fuzz::KEY).view(file);
    match (here, there) {
        (Ok(here), Ok(there)) => assert!(*here == *there, "elsewhere, it is another filter"),
        (Err(here), Err(there)) => assert_eq!(here.to_string(), there.to_string()),
        _ => panic!("alignment makes a difference"),
    }
    assert_eq!(format::verify(place).is_ok(), format::verify(file).is_ok());
});
