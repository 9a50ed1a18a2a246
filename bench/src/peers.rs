//! The peers, as their users call them.
//!
//! Where a crate takes 64-bit hashes it is given them: digests as they are, other keys through the
//! hash named in the note. The rest hash every key themselves and cannot be spared it; their note
//! says so, and their times contain it.
//!
//! Sizes: a structure with a free size is tuned until its *measured* rate is the target
//! (`sizing.rs`). The others come in steps, and take the smallest step that is at most the target:
//! fingerprints of a whole number of bits (qfilter), of 8 or 16 (xorf), of 8 (cuckoofilter, whose
//! 2 to 3% are above every target; it is listed at 1% only).

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::hint::black_box;
use std::marker::PhantomData;

use bloomfilter::Bloom;
use cuckoofilter::CuckooFilter;
use dsi_progress_logger::no_logging;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use inbloom::Digest;
use mem_dbg::{MemSize, SizeFlags};
use sux::bits::BitFieldVec;
use sux::dict::VFilter;
use sux::traits::{TryIntoUnaligned, Unaligned};
use sux::utils::ToSig;
use xorf::{BinaryFuse8, BinaryFuse16};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Clock;
use crate::race::Contestant;
use crate::sizing::{Candidate, Size};
use crate::workload::{Key, mix};

/// The peers for keys that are hashed already.
pub(crate) fn of_digests(rate: f64) -> Vec<Candidate<Digest>> {
    let place = |digest: &Digest| digest.place;
    let mut peers = vec![
        fastbloom("fastbloom", "pre-hashed calls", place),
        sbbf("pre-hashed calls", place),
        qfilter(rate, "pre-hashed calls", place),
        xorf(rate, "static; mixes the hash again", place),
    ];
    peers.push(bloomfilter("hashes again, SipHash", word));
    peers.push(growable("hashes again, xxh3", word));
    if rate >= CUCKOO_LISTED {
        peers.push(cuckoofilter::<_, _, PassOn, _>("hash passed on; fixed rate", word));
    }
    peers
}

/// The peers that can remove. cuckoofilter has one rate, 2 to 3%, and is listed at every target.
pub(crate) fn removable(rate: f64) -> Vec<Candidate<Digest>> {
    vec![
        qfilter(rate, "pre-hashed calls", |digest: &Digest| digest.place),
        cuckoofilter::<_, _, PassOn, _>("hash passed on; fixed rate", word),
    ]
}

/// The peers that grow, from 100 keys on.
pub(crate) fn growing(rate: f64) -> Vec<Candidate<Digest>> {
    vec![Candidate::stepped(
        "growable-bloom-filter",
        "grown from 100; hashes again, xxh3",
        move |_| Growing { filter: GrowableBloom::new(rate, 100), rate },
    )]
}

/// The peers that are built once from all keys, and the rates of their fingerprints.
pub(crate) fn built_once() -> Vec<(Candidate<Digest>, f64)> {
    const WIDTH: usize = 14;
    let hash = |digest: &Digest| digest.place;
    let fuse16 =
        Candidate::planned(
            "xorf fuse16",
            "mixes the hash again",
            move |_| Xorf::<BinaryFuse16, _> { filter: None, hash },
        );
    let vfilter = Candidate::planned("sux VFilter, 14 bits", "mixes the hash again", |_| Sux {
        filter: None,
        width: WIDTH,
    });
    vec![(fuse16, 2_f64.powi(-16)), (vfilter, 2_f64.powi(-(WIDTH as i32)))]
}

/// What hashes its keys itself is given 64 bits of the digest to hash.
fn word(digest: &Digest) -> &u64 {
    &digest.place
}

/// The peers for keys that have yet to be hashed.
pub(crate) fn of_keys<K>(rate: f64) -> Vec<Candidate<K>>
where
    K: Key + Hash + AsRef<[u8]> + 'static,
{
    let xxh3 = |key: &K| xxh3_64(key.as_ref());
    let sip = fastbloom::DefaultHasher::seeded(&[7; 16]);
    let fold = foldhash::fast::FixedState::with_seed(7);
    let stable = qfilter::StableBuildHasher;
    let mut peers = vec![
        fastbloom("fastbloom", "SipHash, its default", move |key: &K| sip.hash_one(key)),
        fastbloom("fastbloom foldhash", "foldhash", move |key: &K| fold.hash_one(key)),
        sbbf("xxh3", xxh3),
        qfilter(rate, "foldhash, its default", move |key: &K| stable.hash_one(key)),
        xorf(rate, "static; xxh3", xxh3),
    ];
    fn whole<K>(key: &K) -> &K {
        key
    }
    peers.push(bloomfilter("SipHash inside", whole));
    peers.push(growable("xxh3 inside", whole));
    if rate >= CUCKOO_LISTED {
        type Sip = std::collections::hash_map::DefaultHasher;
        peers.push(cuckoofilter::<_, _, Sip, _>("SipHash, its default; fixed rate", whole));
    }
    peers
}

/// The lowest target at which cuckoofilter is listed.
const CUCKOO_LISTED: f64 = 0.01;

struct Fastbloom<H> {
    filter: BloomFilter,
    hash: H,
}

fn fastbloom<K: Key + 'static>(
    who: &'static str,
    note: &'static str,
    hash: impl Fn(&K) -> u64 + Clone + 'static,
) -> Candidate<K> {
    Candidate::tuned(who, note, move |size: Size| Fastbloom {
        filter: BloomFilter::with_num_bits(size.bits()).expected_items(size.items()),
        hash: hash.clone(),
    })
}

// `insert(key)` is `insert_hash(source_hash(key))` in fastbloom, so hashing outside costs the same.
impl<K, H: Fn(&K) -> u64> Contestant<K> for Fastbloom<H> {
    fn bits(&self) -> u64 {
        self.filter.num_bits() as u64
    }

    fn clear(&mut self) {
        self.filter.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            black_box(self.filter.insert_hash((self.hash)(key)));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.contains_hash((self.hash)(key))).count()
    }
}

struct Sbbf<H> {
    filter: sbbf_rs_safe::Filter,
    hash: H,
}

fn sbbf<K: Key + 'static>(
    note: &'static str,
    hash: impl Fn(&K) -> u64 + Clone + 'static,
) -> Candidate<K> {
    // Its constructor multiplies whole bits per key by keys: one bit for each of so many "keys".
    Candidate::tuned("sbbf-rs-safe", note, move |size: Size| Sbbf {
        filter: sbbf_rs_safe::Filter::new(1, size.bits()),
        hash: hash.clone(),
    })
}

impl<K, H: Fn(&K) -> u64> Contestant<K> for Sbbf<H> {
    fn bits(&self) -> u64 {
        self.filter.as_bytes().len() as u64 * 8
    }

    fn clear(&mut self) {
        self.filter.reset();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            black_box(self.filter.insert_hash((self.hash)(key)));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.contains_hash((self.hash)(key))).count()
    }
}

struct Quotient<H> {
    filter: qfilter::Filter,
    hash: H,
}

fn qfilter<K: Key + 'static>(
    rate: f64,
    note: &'static str,
    hash: impl Fn(&K) -> u64 + Clone + 'static,
) -> Candidate<K> {
    Candidate::stepped("qfilter", note, move |items| {
        // Slots are a power of two and the rate is load / 2^remainder: the least remainder that
        // keeps the target may be a bit shorter than what the constructor would take.
        let slots = 2_f64.powf((items as f64 / 0.95).log2().ceil());
        let remainder = (items as f64 / slots / rate).log2().ceil();
        let filter = qfilter::Filter::new(items, 2_f64.powf(-remainder));
        Quotient { filter: filter.expect("a size within its limits"), hash: hash.clone() }
    })
}

impl<K, H: Fn(&K) -> u64> Contestant<K> for Quotient<H> {
    fn bits(&self) -> u64 {
        self.filter.memory_usage() as u64 * 8
    }

    fn clear(&mut self) {
        self.filter.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            let new = self.filter.insert_fingerprint(false, (self.hash)(key));
            black_box(new.expect("capacity for all members"));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.contains_fingerprint((self.hash)(key))).count()
    }
}

struct Xorf<F, H> {
    filter: Option<F>,
    hash: H,
}

fn xorf<K: Key + 'static>(
    rate: f64,
    note: &'static str,
    hash: impl Fn(&K) -> u64 + Clone + 'static,
) -> Candidate<K> {
    if rate >= 1.0 / 256.0 {
        Candidate::stepped("xorf fuse8", note, move |_| Xorf::<BinaryFuse8, _> {
            filter: None,
            hash: hash.clone(),
        })
    } else {
        Candidate::stepped("xorf fuse16", note, move |_| Xorf::<BinaryFuse16, _> {
            filter: None,
            hash: hash.clone(),
        })
    }
}

/// What the two widths of xorf have in common.
trait Fuse: xorf::Filter<u64> + for<'a> TryFrom<&'a [u64]> {
    /// Bits of a fingerprint.
    const WIDTH: u64;
}

impl Fuse for BinaryFuse8 {
    const WIDTH: u64 = 8;
}

impl Fuse for BinaryFuse16 {
    const WIDTH: u64 = 16;
}

impl<K, F: Fuse, H: Fn(&K) -> u64> Contestant<K> for Xorf<F, H> {
    fn bits(&self) -> u64 {
        self.filter.as_ref().map_or(0, |filter| filter.len() as u64 * F::WIDTH)
    }

    fn clear(&mut self) {
        self.filter = None;
    }

    fn insert(&mut self, keys: &[K]) {
        let hashes: Vec<u64> = keys.iter().map(&self.hash).collect();
        self.filter = Some(F::try_from(&hashes).ok().expect("distinct hashes"));
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        let filter = self.filter.as_ref().expect("built before it is asked");
        keys.iter().filter(|key| filter.contains(&(self.hash)(key))).count()
    }
}

/// Fingerprints of a whole number of bits, as they are built.
type Packed = BitFieldVec<Box<[usize]>>;

struct Sux {
    filter: Option<VFilter<Signed, Unaligned<Packed>>>,
    width: usize,
}

/// A digest as sux wants its keys: to be hashed under a seed, of which it tries several.
#[derive(Clone, Copy, Debug)]
struct Signed(Digest);

impl ToSig<[u64; 2]> for Signed {
    #[inline]
    fn to_sig(key: impl Borrow<Signed>, seed: u64) -> [u64; 2] {
        let Digest { place, print } = key.borrow().0;
        // The first is where, by shard, and the second what, by its edge, which the seed decides.
        [place ^ seed, mix(print ^ seed)]
    }
}

impl Contestant<Digest> for Sux {
    fn bits(&self) -> u64 {
        self.filter.as_ref().map_or(0, |filter| filter.mem_size(SizeFlags::default()) as u64 * 8)
    }

    fn clear(&mut self) {
        self.filter = None;
    }

    fn insert(&mut self, digests: &[Digest]) {
        let keys: Vec<Signed> = digests.iter().copied().map(Signed).collect();
        let filter = <VFilter<Signed, Packed>>::try_par_new(&keys, self.width, no_logging![]);
        let filter = filter.expect("distinct keys").try_into_unaligned();
        self.filter = Some(filter.expect("a width that can be read unaligned"));
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        let filter = self.filter.as_ref().expect("built before it is asked");
        digests.iter().filter(|digest| filter.contains(Signed(**digest))).count()
    }

    /// It is built by several threads.
    fn clock(&self) -> Clock {
        Clock::Process
    }
}

/// For peers that hash their keys themselves: the part of a key that they are given.
trait View<K, T>: Fn(&K) -> &T + Copy + 'static {}

impl<K, T, V: Fn(&K) -> &T + Copy + 'static> View<K, T> for V {}

struct Bloomfilter<T, V> {
    filter: Bloom<T>,
    view: V,
}

fn bloomfilter<K, T, V>(note: &'static str, view: V) -> Candidate<K>
where
    K: Key + 'static,
    T: Hash + 'static,
    V: View<K, T>,
{
    Candidate::tuned("bloomfilter", note, move |size: Size| {
        let bytes = size.bits().div_ceil(8);
        // The two halves are the keys of its two hashes: equal halves would make them one.
        let seed = std::array::from_fn(|byte| byte as u8);
        let filter = Bloom::new_with_seed(bytes, size.items(), &seed);
        Bloomfilter { filter: filter.expect("a size within its limits"), view }
    })
}

impl<K, T: Hash, V: View<K, T>> Contestant<K> for Bloomfilter<T, V> {
    fn bits(&self) -> u64 {
        self.filter.len()
    }

    fn clear(&mut self) {
        self.filter.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            self.filter.set((self.view)(key));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.check((self.view)(key))).count()
    }
}

struct Growable<T, V> {
    filter: GrowableBloom,
    bits: u64,
    view: V,
    viewed: PhantomData<T>,
}

fn growable<K, T, V>(note: &'static str, view: V) -> Candidate<K>
where
    K: Key + 'static,
    T: Hash + 'static,
    V: View<K, T>,
{
    Candidate::tuned("growable-bloom-filter", note, move |size: Size| {
        // It makes ceil(log2(1 / rate)) slices of capacity / ln 2 bits. Rounding the slices down
        // leaves a capacity of at least `items`, so that it does not grow.
        let ln2 = std::f64::consts::LN_2;
        let slices = (size.bits() as f64 / size.items() as f64 * ln2).floor();
        let capacity = (size.bits() as f64 * ln2 / slices).ceil();
        Growable {
            filter: GrowableBloom::new(0.5_f64.powf(slices), capacity as usize),
            bits: (slices * (capacity / ln2).ceil()) as u64,
            view,
            viewed: PhantomData,
        }
    })
}

impl<K, T: Hash, V: View<K, T>> Contestant<K> for Growable<T, V> {
    fn bits(&self) -> u64 {
        self.bits
    }

    fn clear(&mut self) {
        self.filter.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            black_box(self.filter.insert((self.view)(key)));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.contains((self.view)(key))).count()
    }
}

struct Growing {
    filter: GrowableBloom,
    rate: f64,
}

impl Contestant<Digest> for Growing {
    /// It does not tell its size, but what it takes in bytes is its bits and some words.
    fn bits(&self) -> u64 {
        bincode::serialized_size(&self.filter).expect("a size") * 8
    }

    fn clear(&mut self) {
        self.filter = GrowableBloom::new(self.rate, 100);
    }

    fn insert(&mut self, digests: &[Digest]) {
        for digest in digests {
            black_box(self.filter.insert(digest.place));
        }
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        digests.iter().filter(|digest| self.filter.contains(digest.place)).count()
    }
}

struct Cuckoo<T, H, V> {
    filter: CuckooFilter<H>,
    items: usize,
    view: V,
    viewed: PhantomData<T>,
}

fn cuckoofilter<K, T, H, V>(note: &'static str, view: V) -> Candidate<K>
where
    K: Key + 'static,
    T: Hash + 'static,
    H: Hasher + Default + 'static,
    V: View<K, T>,
{
    Candidate::stepped("cuckoofilter", note, move |items| Cuckoo {
        filter: CuckooFilter::<H>::with_capacity(items as usize),
        items: items as usize,
        view,
        viewed: PhantomData,
    })
}

impl<K, T: Hash, H: Hasher + Default, V: View<K, T>> Contestant<K> for Cuckoo<T, H, V> {
    fn bits(&self) -> u64 {
        self.filter.memory_usage() as u64 * 8
    }

    fn clear(&mut self) {
        self.filter = CuckooFilter::with_capacity(self.items);
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            self.filter.add((self.view)(key)).expect("room for all members");
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.filter.contains((self.view)(key))).count()
    }
}

/// A hasher that passes on the first word of a digest. Short input, the fingerprints that
/// cuckoofilter hashes again to find the other bucket, is mixed.
#[derive(Default)]
struct PassOn(Option<u64>);

impl Hasher for PassOn {
    fn write(&mut self, bytes: &[u8]) {
        let word = bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        self.0.get_or_insert(mix(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0.get_or_insert(word);
    }

    // The length that precedes a hashed slice says nothing about it.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0.unwrap_or_default()
    }
}
