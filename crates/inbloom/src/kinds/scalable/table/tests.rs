use super::*;
use crate::splitmix::SplitMix;

const NARROW: SlotShape = SlotShape { is_wide: false, planes: 0, is_tagged: false };

fn spots(slots: SlotShape, seed: u64) -> impl Iterator<Item = Spot> {
    let mut random = SplitMix(seed << 32);
    core::iter::repeat_with(move || {
        let (place, print) = (random.draw(), random.draw());
        Spot::new(slots, (place >> (64 - TAG)) as u8, place, print)
    })
}

fn table(slots: SlotShape, buckets: u64) -> Table {
    Table::new(slots, buckets, Cells::zeroed).unwrap()
}

fn all_slots() -> impl Iterator<Item = SlotShape> {
    let lanes = [(false, false), (true, false), (true, true)];
    lanes.into_iter().flat_map(|(is_wide, is_tagged)| {
        [0, 1, 2, 5, MAX_PLANES].map(|planes| SlotShape { is_wide, planes, is_tagged })
    })
}

fn grow(table: &mut Table) {
    if let Some((bytes, _)) = table.wants() {
        table.take(Cells::zeroed(bytes).unwrap()).unwrap();
    }
    table.split();
}

fn claim_of(table: &Table, spot: Spot, known: u32) -> Claim {
    let front = spot.front;
    Claim {
        tag: (front >> HEAD) as u8,
        head: front as u8 % (1 << HEAD),
        extra: spot.extra & ((1_u64 << (4 * table.slots.planes)) - 1),
        address: spot.address & ((1 << known) - 1),
        known,
    }
}

fn begins(claim: &Claim, spot: Spot) -> bool {
    u32::from(claim.tag) << HEAD | u32::from(claim.head) == spot.front
        && claim.extra == spot.extra
        && (claim.address ^ spot.address) & ((1 << claim.known) - 1) == 0
}

/// Claims of mixed lengths, as many as there is room for, and hashes near them, in tables with
/// some buckets split.
#[test]
fn a_hash_is_claimed_if_an_entry_begins_it() {
    for slots in all_slots() {
        for buckets in [1, 2, 3, 8, 13, 64, 100] {
            let mut table = table(slots, buckets);
            let mut claims: Vec<Claim> = Vec::new();
            for spot in spots(slots, buckets).take(buckets as usize * LANES * 3 / 4) {
                let shortest = table.level + 1;
                let spread = table.longest() - shortest + 1;
                let claim = claim_of(&table, spot, shortest + (spot.address >> 40) as u32 % spread);
                if table.absorb(claim) {
                    claims.push(claim);
                }
            }
            assert!(claims.len() as u64 * 10 >= buckets * 8 * 7, "{slots:?} {buckets}");
            assert_eq!(table.entries, claims.len() as u64);
            assert!(table.recount() == Some((table.entries, table.weight)));
            let mut listed: Vec<Claim> = table.iter().collect();
            listed.sort_unstable();
            claims.sort_unstable();
            assert_eq!(listed, claims, "{slots:?} {buckets}");
            let near: Vec<Spot> = claims
                .iter()
                .flat_map(|claim| {
                    let spot = table.spot_of(*claim);
                    (0..8)
                        .map(move |i| Spot {
                            address: spot.address ^ 1 << claim.known >> 4 << i,
                            ..spot
                        })
                        .chain([
                            Spot { front: spot.front ^ 1, ..spot },
                            Spot { extra: spot.extra ^ u64::from(slots.planes > 0), ..spot },
                        ])
                })
                .collect();
            for spot in near.into_iter().chain(spots(slots, 99).take(100)) {
                let expected = claims.iter().any(|claim| begins(claim, spot));
                assert_eq!(table.claims(spot), expected, "{slots:?} {buckets}");
            }
        }
    }
}

/// From one bucket to hundreds, and so far that entries run out of bits.
#[test]
fn nothing_is_lost_when_buckets_are_split() {
    for slots in all_slots() {
        let mut table = table(slots, 1);
        let mut kept: Vec<Spot> = Vec::new();
        for spot in spots(slots, 5).take(3000) {
            while table.insert(spot) == Inserted::Refused {
                grow(&mut table);
            }
            kept.push(spot);
        }
        let entries = table.entries;
        while table.level < 18 && !slots.is_wide || table.level < 12 {
            grow(&mut table);
            if table.buckets().is_power_of_two() || table.buckets() % 1000 == 7 {
                assert!(kept.iter().all(|spot| table.claims(*spot)), "{slots:?}");
            }
        }
        assert_eq!(table.entries > entries, !slots.is_wide, "{slots:?}: twins");
        assert!(table.recount() == Some((table.entries, table.weight)), "{slots:?}");
    }
}

#[test]
fn every_entry_survives_another_shape() {
    let mut first = table(NARROW, 29);
    let kept: Vec<Spot> =
        spots(NARROW, 7).filter(|spot| first.insert(*spot) == Inserted::New).take(200).collect();
    for buckets in [3, 20, 29, 40, 64, 100, 1000, 9000] {
        for is_wide in [false, true] {
            let slots = SlotShape { is_wide, ..NARROW };
            let mut other = table(slots, buckets);
            if first.iter().all(|claim| other.absorb(claim)) {
                assert!(kept.iter().all(|spot| other.claims(*spot)));
                assert!(first.iter().all(|claim| other.covers(claim) || buckets > 1000));
            } else {
                assert!(buckets < 29, "{buckets}");
            }
        }
    }
}

/// The example of the module's documentation.
#[test]
fn the_example_is_as_worked_through() {
    let mut table = table(NARROW, 8);
    let spot = Spot { address: 0b110_1101, front: 0b00010, extra: 0 };
    // Address bits from the lowest: 1, 0, 1 (bucket 5), 1, 0, 1, 1.
    assert!(table.insert(spot) == Inserted::New);
    assert_eq!(table.get(5, 0).0 >> 6, 0b00_0010_1011);
    (0..6).for_each(|_| grow(&mut table));
    assert_eq!(table.get(13, 0).0 >> 7, 0b0_0001_0011);
}

#[test]
fn the_other_bucket_of_the_other_is_the_first() {
    for buckets in [1, 2, 3, 32, 50, 1 << 12, 5000] {
        let table = table(NARROW, buckets);
        for spot in spots(NARROW, buckets).take(500) {
            let [home, other] = table.places(spot);
            let known = table.longest();
            let at_home = table.lane(spot, home, 0, known);
            let away = table.lane(spot, other, 1, known);
            assert_eq!(table.other_of(home, at_home).unwrap().bucket, other.bucket);
            assert_eq!(table.other_of(other, away).unwrap().bucket, home.bucket);
            assert_eq!(table.moved(home, at_home, other), away);
            assert_eq!(table.moved(other, away, home), at_home);
            assert!(home.bucket < buckets && other.bucket < buckets);
            assert!(buckets == 1 || home.bucket != other.bucket);
        }
    }
}

/// Wherever in a generation: buckets that are not split get twice the keys of others.
#[test]
fn tables_fill_to_the_brim() {
    for buckets in [4096, 5000, 6000, 7000, 8000] {
        let mut table = table(NARROW, buckets);
        let _ = spots(NARROW, 3).find(|spot| table.insert(*spot) == Inserted::Refused);
        let load = table.entries as f64 / table.all_slots() as f64;
        assert!(load > LOAD + 0.01, "{buckets}: {load}");
    }
}

/// What is known of full buckets costs room where it is wrong, and is known of nearly all.
#[test]
fn buckets_that_are_known_to_be_full_are() {
    for slots in all_slots() {
        let mut table = table(slots, 300);
        for spot in spots(slots, 11).take(20_000) {
            while table.insert(spot) == Inserted::Refused || table.is_crowded() {
                grow(&mut table);
            }
        }
        let full = |bucket: &u64| table.empty(*bucket) == 0;
        let (known, others): (Vec<u64>, Vec<u64>) =
            (0..table.buckets()).partition(|bucket| table.full.has(*bucket));
        assert!(known.iter().all(full), "{slots:?}");
        let unknown = others.into_iter().filter(full).count();
        assert!(unknown * 20 < known.len(), "{slots:?}: {unknown}, {}", known.len());
    }
}

/// Or else a table that is too large would take all memory there is before it is refused.
#[test]
fn a_new_table_asks_for_all_its_memory_at_once() {
    for slots in all_slots() {
        for buckets in [1, 100, 1 << CHUNK, (1 << CHUNK) + 1, 10_000] {
            let mut asked = 0;
            let mut table = Table::new(slots, buckets, |bytes| {
                asked = bytes;
                Cells::zeroed(bytes)
            })
            .unwrap();
            assert_eq!(Some(asked), slots.bytes(buckets));
            assert_eq!((table.buckets(), table.memory()), (buckets, asked));
            assert_eq!(table.chunks.len() as u64, buckets.div_ceil(1 << CHUNK));
            let kept: Vec<Spot> = spots(slots, buckets).take(1 << CHUNK).collect();
            for spot in &kept {
                while table.insert(*spot) == Inserted::Refused {
                    grow(&mut table);
                }
            }
            (0..100).for_each(|_| grow(&mut table));
            assert!(kept.iter().all(|spot| table.claims(*spot)), "{slots:?} {buckets}");
            assert!(table.recount() == Some((table.entries, table.weight)), "{slots:?} {buckets}");
        }
    }
}
