//! How a filter was asked for: what BF.RESERVE, CF.RESERVE and the first BF.ADD make a filter of, and
//! what the log keeps of it.
//!
//! ```text
//!   birth = u8 0 | u8 form | time | fields      made at a time, empty
//!         | u8 1 | image                        as it was somewhere else, see `persist::image`
//!
//!   form 1  bloom       capacity, expansion or 0, f64 rate
//!        2  filter      kind's name, items, f64 rate, milliseconds of a window or 0, f64 share or 0
//!        3  redisbloom  capacity, growth, f64 rate
//!        4  cuckoo      capacity, bucket size, iterations, expansion
//! ```

use std::num::NonZeroU32;
use std::time::Duration;

use inbloom::internals::codec::{Decoder, put_bytes, put_varint};
use inbloom::interop::redisbloom::{self, CuckooChain};
use inbloom::{Filter, Hasher, Kind, Plan};

use super::Value;
use super::bloom::{Bloom, Wish};
use super::shapes::Shapes;
use crate::reply_error::ReplyError;

/// What an empty filter is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spec {
    /// One of BF.*.
    Bloom(Wish),
    /// One of any other kind, or that forgets.
    Filter {
        /// Which kind.
        kind: Kind,
        /// Keys.
        items: u64,
        /// The rate.
        rate: f64,
        /// Of a window.
        span: Option<Duration>,
        /// The share of bits at which it empties itself.
        clear: Option<f64>,
    },
    /// One in RedisBloom's form.
    RedisBloom {
        /// The rate.
        rate: f64,
        /// Keys.
        capacity: u64,
        /// By what it grows, 0 if it does not.
        growth: u32,
    },
    /// One of CF.*.
    Cuckoo {
        /// Keys.
        capacity: u64,
        /// Fingerprints in a bucket.
        bucket_size: u16,
        /// How often a key may be kicked.
        max_iterations: u16,
        /// By what it grows.
        expansion: u16,
    },
}

/// What filters are made with.
pub struct Materials<'a> {
    /// The hash of all filters that are made here.
    pub hasher: &'a Hasher,
    /// The shapes of filters.
    pub shapes: &'a Shapes,
}

/// Who grants memory to filters.
pub trait Grants {
    /// Bytes that were granted, until it is dropped.
    type Grant;
    /// Returns the bytes that a filter may take in all.
    fn limit(&self) -> u64;
    /// Grants the bytes of a filter.
    ///
    /// # Errors
    ///
    /// There is no room for it.
    fn grant(&self, bytes: u64) -> Result<Self::Grant, ReplyError>;
}

/// For filters whose memory was granted before.
pub struct Granted;

impl Grants for Granted {
    type Grant = ();

    fn limit(&self) -> u64 {
        u64::MAX
    }

    fn grant(&self, _: u64) -> Result<(), ReplyError> {
        Ok(())
    }
}

/// Why a filter in RedisBloom's form was not made: if for want of memory, as every other filter is refused.
pub fn not_made(grants: &impl Grants, error: &redisbloom::ForeignError) -> ReplyError {
    match error {
        redisbloom::ForeignError::Limit { needed, .. } => {
            // Within what there is, it was the limit of 4 GiB for one sub-filter.
            grants.grant(*needed).err().unwrap_or_else(|| ReplyError::because(error))
        }
        error => ReplyError::because(error),
    }
}

impl Spec {
    /// Returns the filter itself, and the room that was made for it.
    ///
    /// # Errors
    ///
    /// There is no such filter, or no room for it.
    pub fn value<G: Grants>(
        &self,
        with: &Materials<'_>,
        now: u64,
        grants: &G,
    ) -> Result<(Value, G::Grant), ReplyError> {
        match *self {
            Spec::Bloom(wish) => {
                let shape = with.shapes.get(wish)?;
                let room = grants.grant(shape.plan().bytes())?;
                let bloom = Bloom::new(wish, &shape).map_err(ReplyError::because)?;
                Ok((Value::Bloom(bloom), room))
            }
            Spec::Filter { kind, items, rate, span, clear } => {
                let plan = Plan::builder(kind).items(items).rate(rate);
                let plan = match span {
                    Some(span) => plan.window(span),
                    None => plan,
                };
                let plan = plan.build().map_err(ReplyError::because)?;
                let room = grants.grant(plan.bytes())?;
                let filter = Filter::with_hasher(plan, *with.hasher);
                let mut filter = filter.map_err(ReplyError::because)?;
                filter.set_auto_clear(clear).map_err(ReplyError::because)?;
                if kind.forgets() {
                    filter.advance(now).map_err(ReplyError::because)?;
                }
                Ok((Value::filter(filter), room))
            }
            Spec::RedisBloom { rate, capacity, growth } => {
                let bloom = redisbloom::Bloom::new(rate, capacity, growth, grants.limit());
                let value = Value::redisbloom(bloom.map_err(|error| not_made(grants, &error))?);
                // Its size is known only now that it is there: none of it was touched, so that the
                // system has given nothing for it yet.
                let room = grants.grant(value.memory())?;
                Ok((value, room))
            }
            Spec::Cuckoo { capacity, bucket_size, max_iterations, expansion } => {
                let limit = grants.limit();
                let cuckoo =
                    CuckooChain::new(capacity, bucket_size, max_iterations, expansion, limit);
                let value = Value::cuckoo(cuckoo.map_err(|error| not_made(grants, &error))?);
                let room = grants.grant(value.memory())?;
                Ok((value, room))
            }
        }
    }

    /// Returns what the log says of a filter that was made of it at a time.
    pub fn birth(&self, now: u64) -> Vec<u8> {
        let mut out = vec![0];
        let form = match self {
            Spec::Bloom(_) => 1,
            Spec::Filter { .. } => 2,
            Spec::RedisBloom { .. } => 3,
            Spec::Cuckoo { .. } => 4,
        };
        out.push(form);
        put_varint(&mut out, now);
        match *self {
            Spec::Bloom(wish) => {
                put_varint(&mut out, wish.capacity);
                put_varint(&mut out, wish.expansion.map_or(0, |it| it.get().into()));
                put_double(&mut out, wish.rate());
            }
            Spec::Filter { kind, items, rate, span, clear } => {
                put_bytes(&mut out, kind.name().as_bytes());
                put_varint(&mut out, items);
                put_double(&mut out, rate);
                put_varint(&mut out, span.map_or(0, |span| span.as_millis() as u64));
                put_double(&mut out, clear.unwrap_or(0.0));
            }
            Spec::RedisBloom { rate, capacity, growth } => {
                put_varint(&mut out, capacity);
                put_varint(&mut out, growth.into());
                put_double(&mut out, rate);
            }
            Spec::Cuckoo { capacity, bucket_size, max_iterations, expansion } => {
                put_varint(&mut out, capacity);
                for number in [bucket_size, max_iterations, expansion] {
                    put_varint(&mut out, number.into());
                }
            }
        }
        out
    }
}

/// How a filter came into being.
pub enum Birth<'a> {
    /// It was made of this, at a time.
    Empty(Spec, u64),
    /// It was somewhere else before.
    Image(&'a [u8]),
}

/// Returns what the log says of a filter with content.
pub fn birth_of_image(image: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + image.len());
    out.push(1);
    out.extend_from_slice(image);
    out
}

impl<'a> Birth<'a> {
    /// From what the log says. None: it is of a newer version, or was never written by us.
    pub fn parse(bytes: &'a [u8]) -> Option<Birth<'a>> {
        let mut fields = Decoder(bytes);
        if fields.u8()? == 1 {
            return Some(Birth::Image(fields.rest()));
        }
        if bytes[0] != 0 {
            return None;
        }
        let form = fields.u8()?;
        let time = fields.varint()?;
        let spec = match form {
            1 => {
                let (capacity, expansion) = (fields.varint()?, fields.varint()?);
                let expansion = NonZeroU32::new(u32::try_from(expansion).ok()?);
                Spec::Bloom(Wish::new(fields.f64()?, capacity, expansion))
            }
            2 => {
                let kind = std::str::from_utf8(fields.bytes()?).ok()?;
                Spec::Filter {
                    kind: kind.parse().ok()?,
                    items: fields.varint()?,
                    rate: fields.f64()?,
                    span: Some(fields.varint()?).filter(|it| *it > 0).map(Duration::from_millis),
                    clear: Some(fields.f64()?).filter(|share| *share > 0.0),
                }
            }
            3 => Spec::RedisBloom {
                capacity: fields.varint()?,
                growth: u32::try_from(fields.varint()?).ok()?,
                rate: fields.f64()?,
            },
            4 => Spec::Cuckoo {
                capacity: fields.varint()?,
                bucket_size: u16::try_from(fields.varint()?).ok()?,
                max_iterations: u16::try_from(fields.varint()?).ok()?,
                expansion: u16::try_from(fields.varint()?).ok()?,
            },
            _ => return None,
        };
        fields.0.is_empty().then_some(Birth::Empty(spec, time))
    }
}

fn put_double(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_of_a_filter_that_none_could_reserve_makes_none() {
        let (hasher, shapes) = (Hasher::default(), Shapes::default());
        let with = Materials { hasher: &hasher, shapes: &shapes };
        for (wish, named) in [
            (Wish::new(0.01, 0, NonZeroU32::new(2)), "capacity is 0"),
            (Wish::new(0.01, 100, NonZeroU32::new(40_000)), "expansion is 40000"),
        ] {
            let bytes = Spec::Bloom(wish).birth(1);
            let Some(Birth::Empty(spec, now)) = Birth::parse(&bytes) else { panic!("{wish:?}") };
            let Err(failure) = spec.value(&with, now, &Granted) else { panic!("{named}") };
            assert!(failure.text().contains(named), "{}", failure.text());
        }
    }

    #[test]
    fn a_birth_is_read_as_it_was_written() {
        let growth = NonZeroU32::new(2);
        let filter = |kind, span, clear| Spec::Filter { kind, items: 9, rate: 0.1, span, clear };
        let all = [
            Spec::Bloom(Wish::new(0.01, 100, growth)),
            Spec::Bloom(Wish::new(0.25, u64::MAX, None)),
            filter(Kind::Counting, None, None),
            filter(Kind::Window, Some(Duration::from_secs(3600)), None),
            filter(Kind::Blocked, None, Some(0.8)),
            Spec::RedisBloom { rate: 0.001, capacity: 5, growth: 0 },
            Spec::Cuckoo { capacity: 1024, bucket_size: 2, max_iterations: 20, expansion: 1 },
        ];
        for spec in all {
            let bytes = spec.birth(1_700_000_000_000);
            match Birth::parse(&bytes) {
                Some(Birth::Empty(read, 1_700_000_000_000)) => assert_eq!(read, spec),
                _ => panic!("{spec:?}"),
            }
            for cut in 0..bytes.len() {
                assert!(Birth::parse(&bytes[..cut]).is_none(), "{spec:?} cut at {cut}");
            }
        }
    }
}
