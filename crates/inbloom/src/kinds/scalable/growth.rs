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

/// Slots up to which a table may be grown for any key.
const FREELY: u64 = 1 << 10;

/// Whether keys crowd in a few buckets of a table that is nearly empty, so that no growth would help.
pub(super) fn is_useless(table: &Table) -> bool {
    let slots = table.all_slots();
    slots > FREELY && table.entries < slots / 16
}

/// Up to how many slots a table of so many is grown for one key. Where hashes are hashes, a sixteenth
/// more is enough; a stranger's file may have entries in the key's way that go with it at every split.
pub(super) fn most_slots(slots: u64) -> u64 {
    (2 * slots).max(FREELY)
}

/// The slots of a table, and how many are in use, before it is grown.
#[derive(Clone, Copy)]
pub(super) struct Before {
    slots: u64,
    entries: u64,
}

impl Before {
    pub(super) fn of(table: &Table) -> Before {
        Before { slots: table.all_slots(), entries: table.entries }
    }

    /// Whether most of the slots that were won went to entries that have become two. In a table of our
    /// own some do; if nearly all in it do, it is as full at any size.
    pub(super) fn was_in_vain(self, table: &Table) -> bool {
        let won = table.all_slots().saturating_sub(self.slots);
        table.entries.saturating_sub(self.entries) > won / 2
    }
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
/// reading it. None if it is [not to be had](filled).
pub(super) fn widened(table: &Table, allowance: &mut Allowance<'_>) -> Result<Option<Table>> {
    let slots = SlotShape { is_wide: true, ..table.slots() };
    allowance.take(slots.bytes(table.buckets()).unwrap_or(u64::MAX))?;
    filled(slots, table.buckets(), table.iter(), allowance)
}

/// What is in a table, in one with fewer planes. None if it is [not to be had](filled).
pub(super) fn with_planes(table: &Table, planes: u32) -> Result<Option<Table>> {
    let before = table.slots();
    let claims = table.iter().map(|claim| claim.in_planes(before.planes, planes));
    filled(SlotShape { planes, ..before }, table.buckets(), claims, &mut Allowance::any())
}

/// Divides the one table into shards. None if one of these is [not to be had](filled).
///
/// Narrow lanes are for many keys. A filter that does not grow is only divided to make room for its
/// last planned keys, and its planes keep the rate with wide lanes.
pub(super) fn divided(
    plan: &Plan,
    small: &Table,
    allowance: &mut Allowance<'_>,
) -> Result<Option<Vec<Table>>> {
    let mut claims: Vec<Vec<Claim>> = vec![Vec::new(); SHARDS];
    small.iter().for_each(|claim| claims[usize::from(claim.tag) % SHARDS].push(claim));
    let slots = SlotShape { is_wide: plan.growth == 0, is_tagged: false, ..small.slots() };
    let buckets = |claims: &Vec<Claim>| buckets_for(claims.len() as f64);
    allowance.take(claims.iter().filter_map(|claims| slots.bytes(buckets(claims))).sum())?;
    let tables = claims
        .iter()
        .map(|claims| filled(slots, buckets(claims), claims.iter().copied(), allowance));
    tables.collect()
}

/// A table with these claims, of so many buckets, whose memory was taken from the allowance, or of
/// more if they do not fit. None if twice as many are not enough: a stranger's claims may have no
/// bits left that would tell where to go.
fn filled(
    slots: SlotShape,
    buckets: u64,
    claims: impl Iterator<Item = Claim>,
    allowance: &mut Allowance<'_>,
) -> Result<Option<Table>> {
    let mut table = Table::new(slots, buckets, Cells::zeroed)?;
    let most = most_slots(table.all_slots());
    for claim in claims {
        if table.absorb(claim) {
            continue;
        }
        // Some of what makes it up may be in.
        loop {
            if is_useless(&table) || table.all_slots() >= most {
                return Ok(None);
            }
            enlarge(&mut table, allowance)?;
            if table.merge(claim) {
                break;
            }
        }
    }
    Ok(Some(table))
}

/// Splits some buckets of a table that has no room for a claim.
pub(super) fn enlarge(table: &mut Table, allowance: &mut Allowance<'_>) -> Result<()> {
    for _ in 0..splits_at_once(table) {
        if table.level() >= MAX_LEVEL {
            return Err(Error::TooLarge { bits: table.bytes() as f64 * 16.0, max: MAX_BITS });
        }
        let memory = make_memory(table, allowance)?;
        let given_back = table.wants().map_or(0, |(_, given_back)| given_back);
        split(table, memory)?;
        allowance.give_back(given_back);
    }
    Ok(())
}
