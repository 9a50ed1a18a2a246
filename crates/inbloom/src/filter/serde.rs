//! Over the bytes of the file format, so that a serialized filter is a file and can be read as one.

use core::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{self, Serialize, Serializer};

use super::Filter;
use crate::bloom::BloomFilter;

/// Serializes the bytes of the filter's file, as [`Filter::write_to`] writes them. Use a binary
/// format, such as postcard or MessagePack: JSON writes every byte as a number, and takes up to four
/// times as much.
///
/// A filter with a secret key is written without the key, so it cannot be deserialized. Read its
/// bytes with [`OpenOptions::read_from`](crate::OpenOptions::read_from).
impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).map_err(ser::Error::custom)?;
        serializer.serialize_bytes(&bytes)
    }
}

/// Checks every byte, as [`Filter::read_from`] does. The bytes may be untrusted input.
impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Filter, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = Filter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of an inbloom filter file")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Filter, E> {
                let mut rest = bytes;
                let mut filter = Filter::read_from(&mut rest).map_err(E::custom)?;
                if !rest.is_empty() && filter.plan().shard().is_some() {
                    rest = bytes;
                    filter = Filter::read_shards_from(&mut rest).map_err(E::custom)?;
                }
                match rest {
                    [] => Ok(filter),
                    _ => Err(E::custom(format_args!("{} bytes after the filter", rest.len()))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Filter, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = sequence.next_element()? {
                    bytes.push(byte);
                }
                self.visit_bytes(&bytes)
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

/// Serializes the same bytes as the filter's [`Filter`]. Use a binary format, such as postcard or
/// MessagePack: JSON writes every byte as a number, and takes up to four times as much.
///
/// A filter with a secret key is written without the key, so it cannot be deserialized.
impl Serialize for BloomFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_filter().serialize(serializer)
    }
}

/// Reads what a [`Filter`] or a `BloomFilter` was serialized to, and checks every byte. Refuses
/// filters that [`BloomFilter::from_filter`] refuses.
impl<'de> Deserialize<'de> for BloomFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BloomFilter, D::Error> {
        let filter = Filter::deserialize(deserializer)?;
        BloomFilter::from_filter(filter).map_err(de::Error::custom)
    }
}
