//! How a table that is crowded becomes larger, or many.

use alloc::vec;
use alloc::vec::Vec;

use super::allowance::Allowance;
use super::plan::buckets_for;
use super::table::{Claim, MAX_LEVEL, SlotShape, Table};
use super::{SHARDS, SMALL_BUCKETS};
use crate::error::{Error, Result};
use crate::plan::{MAX_BITS, Plan};
use crate::storage::Cells;

/// What a crowded table does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It splits a bucket.
    Split,
    /// Its slots become wider: what is left of the rate would not do for another generation.
    Widen,
    /// It is divided into shards.
    Divide,
    /// Nothing: keys that are no hashes crowd in a few buckets, and no growth would help.
    Useless,
}

pub(super) fn next_step(plan: &Plan, table: &Table) -> Step {
    if is_useless(table) {
        return Step::Useless;
    }
    if table.level() >= MAX_LEVEL {
        return Step::Useless;
    }
    if table.slots().is_tagged && table.buckets() >= SMALL_BUCKETS {
        return Step::Divide;
    }
    if table.is_even() && !plan.has_rate_left(table) {
        return Step::Widen;
    }
    Step::Split
}

/// Whether keys crowd in a few buckets of a table that is nearly empty, so that no growth would help.
pub(super) fn is_useless(table: &Table) -> bool {
    let slots = table.all_slots();
    slots > 1 << 10 && table.entries < slots / 16
}

/// Makes the memory for one more bucket, if the table has none left. Nothing is changed if there is
/// not as much.
pub(super) fn make_memory(table: &Table, allowance: &mut Allowance<'_>) -> Result<Option<Cells>> {
    let Some((bytes, _)) = table.wants() else { return Ok(None) };
    allowance.take(bytes)?;
    Cells::zeroed(bytes).map(Some)
}

/// Splits one more bucket of a table, and returns how many bytes its memory has grown by.
#[inline]
pub(super) fn split(table: &mut Table, memory: Option<Cells>) -> Result<u64> {
    let mut more = 0;
    if let (Some(memory), Some((bytes, given_back))) = (memory, table.wants()) {
        table.take(memory)?;
        more = bytes - given_back;
    }
    table.split();
    Ok(more)
}

/// How many buckets are split before another try, where one more was not enough.
pub(super) fn splits_at_once(table: &Table) -> u64 {
    (table.buckets() / 16).max(1)
}

/// What is in a table, in one with wider slots. It is not touched itself, so that others may go on
/// reading it.
pub(super) fn widened(table: &Table, allowance: &mut Allowance<'_>) -> Result<Table> {
    let slots = SlotShape { is_wide: true, ..table.slots() };
    filled(slots, table.buckets(), table.iter(), allowance)
}

/// What is in a table, in one with fewer planes.
pub(super) fn with_planes(table: &Table, planes: u32) -> Result<Table> {
    let before = table.slots();
    let claims = table.iter().map(|claim| claim.in_planes(before.planes, planes));
    filled(SlotShape { planes, ..before }, table.buckets(), claims, &mut Allowance::any())
}

/// Divides the one table into shards.
pub(super) fn divided(small: &Table, allowance: &mut Allowance<'_>) -> Result<Vec<Table>> {
    let mut claims: Vec<Vec<Claim>> = vec![Vec::new(); SHARDS];
    small.iter().for_each(|claim| claims[usize::from(claim.tag) % SHARDS].push(claim));
    let slots = SlotShape { is_wide: false, is_tagged: false, ..small.slots() };
    let tables = claims.iter().map(|claims| {
        filled(slots, buckets_for(claims.len() as f64), claims.iter().copied(), allowance)
    });
    tables.collect()
}

/// A table with these claims, of so many buckets or, if they do not fit, more.
pub(super) fn filled(
    slots: SlotShape,
    buckets: u64,
    claims: impl Iterator<Item = Claim>,
    allowance: &mut Allowance<'_>,
) -> Result<Table> {
    let mut table = Table::new(slots, buckets, |bytes| {
        allowance.take(bytes)?;
        Cells::zeroed(bytes)
    })?;
    for claim in claims {
        if table.absorb(claim) {
            continue;
        }
        // Some of what makes it up may be in.
        loop {
            if is_useless(&table) {
                return Err(Error::TooLarge { bits: table.bytes() as f64 * 16.0, max: MAX_BITS });
            }
            enlarge(&mut table, allowance)?;
            if table.merge(claim) {
                break;
            }
        }
    }
    Ok(table)
}

/// Splits some buckets of a table that has no room for a claim.
pub(super) fn enlarge(table: &mut Table, allowance: &mut Allowance<'_>) -> Result<()> {
    if table.level() >= MAX_LEVEL {
        return Err(Error::TooLarge { bits: table.bytes() as f64 * 16.0, max: MAX_BITS });
    }
    for _ in 0..splits_at_once(table) {
        let memory = make_memory(table, allowance)?;
        let given_back = table.wants().map_or(0, |(_, given_back)| given_back);
        split(table, memory)?;
        allowance.give_back(given_back);
    }
    Ok(())
}
