//! FNV of 64 bits (Fowler, Noll and Vo), of DCSO's filters and of Go's before 2017.

/// The offset basis.
pub(crate) const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1: multiplies, then takes a byte in. From a state, so that a key may come in parts.
pub(crate) fn fnv_1(state: u64, key: &[u8]) -> u64 {
    key.iter().fold(state, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

/// FNV-1a: takes a byte in, then multiplies.
pub(crate) fn fnv_1a(state: u64, key: &[u8]) -> u64 {
    key.iter().fold(state, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        assert_eq!(fnv_1(BASIS, b""), BASIS);
        assert_eq!(fnv_1(BASIS, b"hello"), 0x7b49_5389_bdbd_d4c7);
        assert_eq!(fnv_1(fnv_1(BASIS, b"he"), b"llo"), 0x7b49_5389_bdbd_d4c7);
        // The authors' test vectors (draft-eastlake-fnv).
        assert_eq!(fnv_1a(BASIS, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(BASIS, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
