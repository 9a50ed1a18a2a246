//! Damaged and forged filter files: fields of the header by their places (see docs/format.md), and
//! checksums made right again, so that readers must judge what lies behind them.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the header in front of the table of sections.
pub const HEADER: usize = 128;
/// Bytes of an entry of the table of sections: tag, reserved, offset, length, checksum.
pub const ENTRY: usize = 32;

/// Offset and length of the header's fields; the checksum is not among them.
pub const FIELDS: [(usize, usize); 23] = [
    (8, 2),
    (10, 2),
    (12, 4),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 4),
    (52, 2),
    (54, 2),
    (56, 2),
    (58, 2),
    (60, 2),
    (62, 1),
    (63, 1),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (104, 8),
    (112, 4),
    (116, 4),
];

/// Returns a field of up to eight little-endian bytes, or 0 if it is not in the file.
pub fn get(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut number = [0; 8];
    if let Some(field) = at.checked_add(length).and_then(|end| bytes.get(at..end)) {
        number[..length].copy_from_slice(field);
    }
    u64::from_le_bytes(number)
}

/// Writes a field of up to eight little-endian bytes, if it is in the file.
pub fn put(bytes: &mut [u8], at: usize, length: usize, value: u64) {
    if let Some(field) = at.checked_add(length).and_then(|end| bytes.get_mut(at..end)) {
        field.copy_from_slice(&value.to_le_bytes()[..length]);
    }
}

/// Returns how many sections the header names.
pub fn sections(bytes: &[u8]) -> usize {
    get(bytes, 12, 4) as usize
}

/// Returns where the entries of the sections start, as far as the table is in the file.
pub fn entries(bytes: &[u8]) -> impl DoubleEndedIterator<Item = usize> + use<> {
    let room = bytes.len().saturating_sub(HEADER) / ENTRY;
    (0..sections(bytes).min(room)).map(|index| HEADER + ENTRY * index)
}

/// Returns the bytes of the section of an entry, if they are in the file.
pub fn section(bytes: &[u8], entry: usize) -> Option<&[u8]> {
    let start = usize::try_from(get(bytes, entry + 8, 8)).ok()?;
    let length = usize::try_from(get(bytes, entry + 16, 8)).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

/// Makes the checksums of the sections right that are in the file.
pub fn seal_sections(bytes: &mut [u8]) {
    for entry in entries(bytes) {
        if let Some(checksum) = section(bytes, entry).map(xxh3_64) {
            put(bytes, entry + 24, 8, checksum);
        }
    }
}

/// Makes the header's checksum right, if all of the header is in the file.
pub fn seal_header(bytes: &mut [u8]) {
    let header = HEADER.saturating_add(ENTRY.saturating_mul(sections(bytes)));
    if header <= bytes.len() {
        put(bytes, 120, 8, 0);
        let checksum = xxh3_64(&bytes[..header]);
        put(bytes, 120, 8, checksum);
    }
}

/// Makes all checksums right, as far as what they cover is in the file.
pub fn seal(bytes: &mut [u8]) {
    seal_sections(bytes);
    seal_header(bytes);
}
