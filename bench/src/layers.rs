//! The other way to grow, against which the scalable kind was weighed: layers of blocked filters, each
//! for twice as many keys as the one before, and at a lower rate, so that the rates add up to the target
//! (Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom filters", 2007). Only here, to be measured.

use std::hint::black_box;

use inbloom::{Digest, Filter, Kind, Plan};

use crate::race::{BATCH, Batch, Contestant, count};

const GROWTH: u64 = 2;
/// The share of the rate that a layer leaves to later ones: the best of 0.5, 0.8, 0.85 and 0.9 at 10 M.
const TIGHTENING: f64 = 0.85;

pub(crate) struct Layers {
    first: u64,
    rate: f64,
    layers: Vec<Filter>,
    answers: Vec<bool>,
    found: Vec<bool>,
}

impl Layers {
    pub(crate) fn new(first: u64, rate: f64) -> Layers {
        let (layers, answers, found) = (Vec::new(), Vec::new(), Vec::new());
        Layers { first, rate, layers, answers, found }
    }

    fn add(&mut self, digest: Digest) {
        if self.layers.iter().any(|layer| layer.contains_digest(digest)) {
            return;
        }
        if self.layers.last().is_none_or(|last| last.inserted() >= last.plan().items()) {
            let number = self.layers.len();
            let items = self.first * GROWTH.pow(number as u32);
            let rate = self.rate * (1.0 - TIGHTENING) * TIGHTENING.powi(number as i32);
            let plan =
                Plan::builder(Kind::Blocked).items(items).rate(rate).build().expect("a plan");
            self.layers.push(Filter::new(plan).expect("memory for a layer"));
        }
        let last = self.layers.last_mut().expect("just made");
        black_box(last.insert_digest(digest).expect("a Bloom filter is never full"));
    }
}

impl Contestant<Digest> for Layers {
    fn bits(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes() * 8).sum()
    }

    fn clear(&mut self) {
        self.layers.clear();
    }

    fn insert(&mut self, digests: &[Digest]) {
        digests.iter().for_each(|digest| self.add(*digest));
    }

    /// The largest layers first: most keys are there.
    fn contains(&mut self, digests: &[Digest]) -> usize {
        let found = |digest: &&Digest| {
            self.layers.iter().rev().any(|layer| layer.contains_digest(**digest))
        };
        digests.iter().filter(found).count()
    }

    fn batch(&mut self) -> Option<&mut dyn Batch<Digest>> {
        Some(self)
    }
}

impl Batch<Digest> for Layers {
    fn insert_batch(&mut self, digests: &[Digest]) {
        self.insert(digests);
    }

    fn contains_batch(&mut self, digests: &[Digest]) -> usize {
        let mut total = 0;
        for batch in digests.chunks(BATCH) {
            self.found.clear();
            self.found.resize(batch.len(), false);
            for layer in &self.layers {
                layer.contains_digests(batch, &mut self.answers);
                for (found, answer) in self.found.iter_mut().zip(&self.answers) {
                    *found |= answer;
                }
            }
            total += count(&self.found);
        }
        total
    }
}
