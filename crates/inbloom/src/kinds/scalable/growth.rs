//! How a table without room becomes larger, or many.

use alloc::vec;
use alloc::vec::Vec;

use super::allowance::Allowance;
use super::table::{Claim, Table, TableShape};
use super::{ClaimLengths, MAX_SMALL_LEVEL, SHARDS};
use crate::error::{Error, Result};
use crate::plan::{MAX_BITS, Plan};

/// What a table without room becomes.
pub(super) enum Growth {
    Larger(Table),
    /// As many tables as there are shards, in place of the one.
    Shards(Vec<Table>),
    /// Nothing: keys that are no hashes crowd in a few buckets, and no growth would help.
    Useless,
}

/// Makes a table larger by one step: what is in it, in new tables. It is not touched itself, so
/// that others may go on reading it.
pub(super) fn grow(plan: &Plan, table: &Table, allowance: &mut Allowance) -> Result<Growth> {
    let shape = table.shape();
    if shape.all_slots() > 1 << 10 && table.entries < shape.all_slots() / 16 {
        return Ok(Growth::Useless);
    }
    if shape.words < plan.max_words(shape.lanes) {
        let shape = TableShape { words: plan.max_words(shape.lanes), ..shape };
        return filled(shape, table.generation, table.iter(), allowance).map(Growth::Larger);
    }
    if shape.tagged && shape.level + plan.growth_bits() > MAX_SMALL_LEVEL {
        return divided(plan, table, allowance).map(Growth::Shards);
    }
    multiplied(plan, table, allowance).map(Growth::Larger)
}

/// Multiplies the buckets of a table. Its next generation begins.
pub(super) fn multiplied(plan: &Plan, table: &Table, allowance: &mut Allowance) -> Result<Table> {
    let TableShape { level, tagged, .. } = table.shape();
    let level = level + plan.growth_bits();
    let lengths = ClaimLengths::of(table.iter());
    let lanes = plan.lanes(level, tagged, &lengths);
    let shape = TableShape { level, words: TableShape::min_words(lanes), lanes, tagged };
    filled(shape, table.generation + 1, table.iter(), allowance)
}

/// Divides the one table into shards.
pub(super) fn divided(plan: &Plan, small: &Table, allowance: &mut Allowance) -> Result<Vec<Table>> {
    let mut claims: Vec<Vec<Claim>> = vec![Vec::new(); SHARDS];
    small.iter().for_each(|claim| claims[usize::from(claim.tag)].push(claim));
    let tables = claims.iter().map(|claims| {
        let lengths = ClaimLengths::of(claims.iter().copied());
        // Room for 5% more, so that not all of them grow at once again.
        let shape = plan.shape(lengths.count() as f64 * 0.05, false, &lengths)?;
        filled(shape, 0, claims.iter().copied(), allowance)
    });
    tables.collect()
}

/// The doublings before there were shards, once the one table is divided: they are its next
/// generation.
pub(super) fn early_after(early: u32, small: &Table) -> u32 {
    early + small.generation + 1
}

/// How many more doublings than planned a table may need for what it takes over. More would be needed only
/// for claims so short that no table of ours has them: a stranger's file may.
pub(super) const MOST_LARGER: u32 = 4;

/// A table of this shape with these claims; a larger one if they do not fit, which is rare.
pub(super) fn filled(
    mut shape: TableShape,
    generation: u32,
    claims: impl Iterator<Item = Claim> + Clone,
    allowance: &mut Allowance,
) -> Result<Table> {
    let most = shape.level + MOST_LARGER;
    loop {
        if !shape.is_valid() || shape.level > most {
            return Err(Error::TooLarge { bits: shape.bytes() as f64 * 8.0, max: MAX_BITS });
        }
        allowance.take(shape.bytes())?;
        let mut table = Table::new(shape, generation)?;
        if claims.clone().all(|claim| table.absorb(claim)) {
            return Ok(table);
        }
        drop(table);
        allowance.give_back(shape.bytes());
        if shape.words < TableShape::max_words(shape.lanes) {
            shape.words += 1;
        } else {
            shape.level += 1;
        }
    }
}
