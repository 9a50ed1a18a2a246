//! Version 1 of the file format, pinned. The files in `golden/` were written once and stay as they are;
//! today's library must read them, answer from them as it did then, and write the same bytes for the
//! same inserts. What is pinned is the format, the hashes and the places of bits, not the planner: the
//! plan is taken from the file.
//!
//! The files of the scalable kind, and those with a growing part, were replaced once: layout 0 of that
//! kind was given up before there was a release.
//!
//! A test here that fails says that files out there would be misread. Do not change the file, nor what
//! is pinned: give the new meaning a new number (docs/format.md, "What may change"). To add a file, add
//! it to [`GOLDEN`] and run
//!
//! ```text
//! INBLOOM_WRITE_GOLDEN=1 cargo test -p inbloom --test it golden -- --ignored --nocapture
//! ```
//!
//! which writes those that are missing, never those that are there, and prints what to pin.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use inbloom::internals::format;
use inbloom::{Filter, Hasher, Kind, OpenOptions, Plan, PlanBuilder, SecretKey, Span};
use xxhash_rust::xxh3::xxh3_64;

/// A file, how it was made, and what was seen when it was.
struct Golden {
    name: &'static str,
    make: fn() -> Filter,
    members: Members,
    /// XXH3-64 of the payload.
    payload: u64,
    /// The first ten i for which "absent i" is claimed. An exact kind claims none.
    false_positives: &'static [u64],
}

/// Layouts that were never released, or are not read any more: refused by their numbers, with what to
/// do.
#[test]
fn retired_layouts_are_refused_by_name() {
    for (name, kind) in [
        ("ribbon-layout-0", "ribbon"),
        ("ribbon-overlay-layout-0", "ribbon"),
        ("scalable-small-layout-0", "scalable"),
        // Its growing part is one.
        ("blocked-grown-layout-0", "scalable"),
    ] {
        let path = folder().join("retired").join(name).with_extension("ib");
        let bytes = fs::read(&path).unwrap();
        let expected = format!(
            "layout: expected 1 in a filter of kind {kind}, got 0; this inbloom no longer reads that \
             layout; build the filter again from its keys"
        );
        let refused = [
            Filter::open(&path).map(drop).unwrap_err(),
            Filter::view(&bytes).map(drop).unwrap_err(),
            Filter::read_from(bytes.as_slice()).map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(error.to_string().ends_with(&expected), "{name}: {error}");
        }
    }
}

/// What is done to the filter, in this order.
#[derive(Clone, Copy)]
enum Members {
    /// "member 0", "member 1" and so on are inserted.
    Words(u64),
    /// The same words, which the filter was built from.
    Built(u64),
    /// The members of [`living`].
    Changed,
    /// The words of [`Members::Words`], more than the filter was planned for.
    Beyond(u64),
    /// These integers are, as 8 little-endian bytes.
    Integers(fn() -> Vec<u64>),
    /// Members are inserted, removed or forgotten, after which those from the one to the other are
    /// in.
    Steps(&'static [Step], (u64, u64)),
}

/// Numbers are those of members, from the one to the other.
#[derive(Clone, Copy)]
enum Step {
    Insert(u64, u64),
    Remove(u64, u64),
    Advance(u64),
}

fn words(numbers: Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|i| format!("member {i}").into_bytes()).collect()
}

impl Members {
    /// What is in at the end.
    fn keys(self) -> Vec<Vec<u8>> {
        match self {
            Members::Words(count) | Members::Built(count) | Members::Beyond(count) => {
                words(0..count)
            }
            Members::Changed => words(0..920),
            Members::Integers(values) => {
                values().iter().map(|value| value.to_le_bytes().to_vec()).collect()
            }
            Members::Steps(_, (first, end)) => words(first..end),
        }
    }

    /// Does it all, with this way to insert.
    fn apply(self, filter: &mut Filter, insert: impl Fn(&mut Filter, &[Vec<u8>])) {
        let steps = match self {
            Members::Steps(steps, _) => steps,
            Members::Built(_) | Members::Changed => return,
            _ => return insert(filter, &self.keys()),
        };
        for step in steps {
            match *step {
                Step::Insert(first, end) => insert(filter, &words(first..end)),
                Step::Remove(first, end) => {
                    for word in words(first..end) {
                        assert!(filter.remove(word).unwrap());
                    }
                }
                Step::Advance(now) => filter.advance(now).unwrap(),
            }
        }
    }
}

fn one_by_one(filter: &mut Filter, keys: &[Vec<u8>]) {
    for key in keys {
        filter.insert(key).unwrap();
    }
}

fn at_once(filter: &mut Filter, keys: &[Vec<u8>]) {
    filter.insert_many(keys, &mut Vec::new()).unwrap();
}

const KEY: SecretKey = SecretKey::new(*b"0123456789abcdef");

fn blocked(bits: u64, lines: u32, probes: u32) -> PlanBuilder {
    Plan::builder(Kind::Blocked).items(bits / 10).bytes(bits / 8).lines(lines).probes(probes)
}

/// 4096 counters, or 4032 of three bits.
fn counting(width: u32, lines: u32, probes: u32) -> PlanBuilder {
    let plan = Plan::builder(Kind::Counting).items(400).bytes(512 * u64::from(width)).width(width);
    plan.lines(lines).probes(probes)
}

fn cuckoo(items: u64, rate: f64) -> PlanBuilder {
    Plan::builder(Kind::Cuckoo).items(items).rate(rate)
}

/// A list of members 0 to 900 and, since it was built, 900 to 920; of those that it was built from,
/// 1000 to 1100 were removed, and "absent 0" to "absent 300" are denied.
fn living(plan: Plan, hasher: Hasher) -> Filter {
    let built: Vec<_> = [words(0..900), words(1000..1100)].concat();
    let digests: Vec<_> = built.iter().map(|key| hasher.digest(key)).collect();
    let mut list =
        Filter::build(plan, hasher, &digests).unwrap().into_overlay(plan.rate()).unwrap();
    one_by_one(&mut list, &words(900..920));
    for word in words(1000..1100) {
        assert!(list.remove(word).unwrap());
    }
    for number in 0..300 {
        list.remove(format!("absent {number}")).unwrap();
    }
    list
}

/// A filter to start from: of a static kind one that has all members.
fn start(plan: Plan, hasher: Hasher, members: Members) -> Filter {
    if let Members::Changed = members {
        return living(plan, hasher);
    }
    let keys = if plan.kind().is_static() { members.keys() } else { Vec::new() };
    let digests: Vec<_> = keys.iter().map(|key| hasher.digest(key)).collect();
    Filter::build(plan, hasher, &digests).unwrap()
}

fn ribbon(items: u64, rate: f64, members: u64) -> Filter {
    let plan = Plan::builder(Kind::Ribbon).items(items).rate(rate).build().unwrap();
    start(plan, Hasher::default(), Members::Built(members))
}

fn filter(plan: PlanBuilder) -> Filter {
    Filter::new(plan.build().unwrap()).unwrap()
}

const GOLDEN: &[Golden] = &[
    // Every shape of the blocked kind: the probes of a line are rounds in four combinations.
    Golden {
        name: "blocked-4",
        make: || filter(blocked(4096, 1, 4)),
        members: Members::Words(600),
        payload: 0x564a_e620_a8e8_f8f0,
        false_positives: &[42, 44, 76, 120, 123, 132, 199, 262, 281, 284],
    },
    Golden {
        name: "blocked-8",
        make: || filter(blocked(4096, 1, 8)),
        members: Members::Words(400),
        payload: 0x03c9_3842_267d_b5c7,
        false_positives: &[199, 210, 382, 437, 439, 609, 637, 777, 1040, 1217],
    },
    Golden {
        name: "blocked-12",
        make: || filter(blocked(4096, 1, 12)),
        members: Members::Words(300),
        payload: 0x9ffb_c937_f924_456e,
        false_positives: &[199, 207, 790, 918, 1143, 1240, 1427, 1698, 1821, 2463],
    },
    Golden {
        name: "blocked-16",
        make: || filter(blocked(4096, 1, 16)),
        members: Members::Words(250),
        payload: 0xb8a5_c472_29ae_6f4e,
        false_positives: &[839, 2458, 3433, 5838, 7054, 7509, 8675, 9040, 9742, 10525],
    },
    Golden {
        name: "blocked-two-lines-8",
        make: || filter(blocked(4096, 2, 8)),
        members: Members::Words(400),
        payload: 0x5693_30f5_1a7e_3010,
        false_positives: &[123, 125, 200, 1285, 1298, 1317, 1684, 1721, 1832, 1852],
    },
    Golden {
        name: "blocked-two-lines-16",
        make: || filter(blocked(4096, 2, 16)),
        members: Members::Words(260),
        payload: 0x9010_82cd_e4e4_48b9,
        false_positives: &[200, 202, 1235, 1356, 1834, 2580, 2847, 3131, 5300, 8066],
    },
    Golden {
        name: "blocked-two-lines-24",
        make: || filter(blocked(4096, 2, 24)),
        members: Members::Words(220),
        payload: 0xe6c7_a3a7_d8bb_30c0,
        false_positives: &[5851, 6998, 8361, 10404, 12247, 14760, 17368, 17841, 17870, 18013],
    },
    Golden {
        name: "blocked-two-lines-32",
        make: || filter(blocked(4096, 2, 32)),
        members: Members::Words(200),
        payload: 0xd061_07b5_0fba_6500,
        false_positives: &[402, 6725, 8075, 9623, 11031, 12400, 13992, 14760, 15630, 16311],
    },
    // The smallest there is, and one whose number of blocks is no power of two.
    Golden {
        name: "blocked-one-block",
        make: || filter(blocked(512, 1, 8)),
        members: Members::Words(50),
        payload: 0x3ba0_0999_343a_6b9d,
        false_positives: &[34, 59, 138, 316, 325, 506, 639, 775, 786, 1071],
    },
    Golden {
        name: "blocked-seven-blocks",
        make: || filter(blocked(7 * 512, 1, 8)),
        members: Members::Words(300),
        payload: 0xdc2a_0dba_3c68_76f2,
        false_positives: &[18, 199, 584, 1055, 1415, 1564, 1695, 1962, 2213, 2251],
    },
    Golden {
        name: "blocked-empty",
        make: || filter(blocked(512, 1, 8)),
        members: Members::Words(0),
        payload: 0x2ffb_6918_c12c_256e,
        false_positives: &[],
    },
    Golden {
        name: "classic-7",
        make: || Filter::new(Plan::exact(Kind::Classic, 4096, 7).unwrap()).unwrap(),
        members: Members::Words(500),
        payload: 0x418f_2f09_7d26_ca63,
        false_positives: &[25, 41, 87, 88, 109, 136, 277, 283, 304, 346],
    },
    // Bits that are no multiple of a word, nor of a byte.
    Golden {
        name: "classic-odd",
        make: || Filter::new(Plan::exact(Kind::Classic, 1003, 3).unwrap()).unwrap(),
        members: Members::Words(300),
        payload: 0x94f6_3a09_daee_eb9d,
        false_positives: &[5, 11, 15, 16, 25, 27, 30, 33, 34, 43],
    },
    Golden {
        name: "classic-64-probes",
        make: || Filter::new(Plan::exact(Kind::Classic, 8192, 64).unwrap()).unwrap(),
        members: Members::Words(420),
        payload: 0xd955_f4f4_3aeb_cd1a,
        false_positives: &[2, 15, 21, 29, 41, 73, 77, 103, 110, 118],
    },
    Golden {
        name: "bitmap-dense",
        make: || filter(Plan::builder(Kind::Bitmap).universe(1003)),
        members: Members::Integers(|| vec![0, 1, 63, 64, 65, 500, 999, 1002]),
        payload: 0xc649_9a43_96d9_b207,
        false_positives: &[],
    },
    // Scattered members and a run of 5000: containers of both sorts, under two high halves.
    Golden {
        name: "bitmap-sparse",
        make: || filter(Plan::builder(Kind::Bitmap).universe(1 << 40).items(5100)),
        members: Members::Integers(|| {
            let scattered = (0..100).map(|i| i * 10_000_000_019);
            let run = (1 << 33) + 70_000..(1 << 33) + 75_000;
            [0, (1 << 40) - 1].into_iter().chain(scattered).chain(run).collect()
        }),
        payload: 0x6931_1d12_6210_85e1,
        false_positives: &[],
    },
    Golden {
        name: "hash-siphash",
        make: || {
            let plan = blocked(2048, 1, 8).build().unwrap();
            Filter::with_hasher(plan, Hasher::sip13(KEY)).unwrap()
        },
        members: Members::Words(200),
        payload: 0xf20c_7e2f_b44e_cd7a,
        false_positives: &[245, 268, 295, 419, 592, 606, 777, 974, 1432, 1537],
    },
    Golden {
        name: "hash-xxh3-seeded",
        make: || {
            let plan = blocked(2048, 1, 8).build().unwrap();
            Filter::with_hasher(plan, Hasher::xxh3(0x0123_4567_89ab_cdef)).unwrap()
        },
        members: Members::Words(200),
        payload: 0xb000_8aaf_fc6a_c218,
        false_positives: &[146, 188, 430, 533, 654, 699, 967, 1149, 1303, 2121],
    },
    // Counters of each width; those of two bits reach their maximum here and there.
    Golden {
        name: "counting-2",
        make: || filter(counting(2, 1, 8)),
        members: Members::Words(400),
        payload: 0xb493_0dc8_7a06_c582,
        false_positives: &[123, 297, 327, 500, 526, 569, 646, 946, 1022, 1036],
    },
    Golden {
        name: "counting-3",
        make: || filter(counting(3, 1, 12)),
        members: Members::Words(300),
        payload: 0xab13_3093_1ddd_1fd0,
        false_positives: &[46, 491, 535, 599, 607, 819, 983, 991, 1339, 1559],
    },
    Golden {
        name: "counting-3-two-lines",
        make: || filter(counting(3, 2, 16)),
        members: Members::Words(260),
        payload: 0xb8fc_560f_0dce_fe52,
        false_positives: &[618, 942, 1849, 2153, 2921, 4198, 4517, 5184, 6684, 7756],
    },
    Golden {
        name: "counting-3-removed",
        make: || filter(counting(3, 1, 8)),
        members: Members::Steps(
            &[
                Step::Insert(0, 500),
                Step::Insert(300, 400),
                Step::Remove(0, 100),
                Step::Remove(300, 350),
                Step::Insert(500, 510),
            ],
            (100, 510),
        ),
        payload: 0x371b_84eb_947b_f20d,
        false_positives: &[98, 203, 297, 485, 501, 543, 626, 839, 893, 978],
    },
    Golden {
        name: "counting-4",
        make: || filter(counting(4, 1, 12)),
        members: Members::Words(300),
        payload: 0xbfd6_d689_a648_34ad,
        false_positives: &[29, 300, 543, 546, 558, 576, 1249, 1294, 1564, 1635],
    },
    Golden {
        name: "counting-8",
        make: || filter(counting(8, 1, 4)),
        members: Members::Words(600),
        payload: 0x46dd_dea3_569f_4505,
        false_positives: &[10, 44, 46, 66, 68, 73, 78, 93, 95, 123],
    },
    Golden {
        name: "counting-two-lines",
        make: || filter(counting(4, 2, 16)),
        members: Members::Words(260),
        payload: 0x062f_14c5_069e_301f,
        false_positives: &[71, 297, 1910, 1947, 2237, 4198, 5499, 5761, 5928, 6162],
    },
    // Some of them twice, of which one goes.
    Golden {
        name: "counting-removed",
        make: || filter(counting(4, 1, 8)),
        members: Members::Steps(
            &[
                Step::Insert(0, 500),
                Step::Insert(300, 400),
                Step::Remove(0, 100),
                Step::Remove(300, 350),
                Step::Insert(500, 510),
            ],
            (100, 510),
        ),
        payload: 0x522d_1f85_6dc4_2ba7,
        false_positives: &[10, 78, 297, 371, 459, 464, 483, 543, 584, 630],
    },
    // Slots of 9 bits, as full as planned, so that entries had to move; of 23 bits, with removals;
    // and of 40, which are found one by one.
    Golden {
        name: "cuckoo-9",
        make: || filter(cuckoo(1000, 0.02)),
        members: Members::Words(1000),
        payload: 0x04f1_7241_5f19_de99,
        false_positives: &[87, 265, 412, 419, 483, 494, 503, 507, 526, 614],
    },
    Golden {
        name: "cuckoo-23-removed",
        make: || filter(cuckoo(500, 1e-6)),
        members: Members::Steps(
            &[
                Step::Insert(0, 500),
                Step::Remove(0, 200),
                Step::Insert(450, 550),
                Step::Remove(450, 460),
            ],
            (200, 550),
        ),
        payload: 0xcaae_dc00_768e_c97d,
        false_positives: &[988878],
    },
    Golden {
        name: "cuckoo-40",
        make: || filter(cuckoo(300, 1e-11)),
        members: Members::Words(300),
        payload: 0x70c5_cd53_a12e_3467,
        false_positives: &[],
    },
    // The last 300 of 850: four generations of a hundred, of which the newest has 50.
    Golden {
        name: "window-keys",
        make: || filter(Plan::builder(Kind::Window).last(300).generations(3).rate(0.02)),
        members: Members::Steps(&[Step::Insert(0, 850)], (550, 850)),
        payload: 0x7da8_df16_75c7_ed3f,
        false_positives: &[361, 371, 453, 489, 662, 668, 886, 1163, 1211, 1212],
    },
    // A second in four steps: the first call sets the clock, and what came before counts from then.
    Golden {
        name: "window-time",
        make: || {
            let plan = Plan::builder(Kind::Window).window(Duration::from_secs(1)).items(400);
            filter(plan.rate(0.02))
        },
        members: Members::Steps(
            &[
                Step::Insert(0, 50),
                Step::Advance(1_700_000_000_000),
                Step::Insert(50, 100),
                Step::Advance(1_700_000_000_300),
                Step::Insert(100, 200),
                Step::Advance(1_700_000_000_800),
                Step::Insert(200, 300),
                Step::Advance(1_700_000_001_299),
                Step::Insert(300, 350),
            ],
            (100, 350),
        ),
        payload: 0xb46c_b0d5_a3a3_b74f,
        false_positives: &[280, 549, 764, 808, 813, 854, 892, 1317, 1395, 1402],
    },
    // One table, grown several times; the 16 tables that it is divided into; and one that cannot grow.
    Golden {
        name: "scalable-small",
        make: || filter(Plan::builder(Kind::Scalable).items(10).rate(0.05)),
        members: Members::Words(700),
        payload: 0xaff5_014e_3dd6_b615,
        // Its fingerprints are still longer than any of these would take.
        false_positives: &[],
    },
    Golden {
        name: "scalable-divided",
        make: || {
            filter(Plan::builder(Kind::Scalable).items(100).rate(0.1).tightening(0.6).growth(4))
        },
        members: Members::Words(9000),
        payload: 0xc10e_3e50_63d7_458b,
        false_positives: &[2392, 5369, 5971, 6395, 8850, 8938, 9917, 12514, 13548, 16478],
    },
    Golden {
        name: "scalable-fixed",
        make: || filter(Plan::builder(Kind::Scalable).items(500).rate(0.02).growth(0)),
        members: Members::Words(500),
        payload: 0x6609_23b4_2961_fb6f,
        false_positives: &[],
    },
    // Several layers; one bit a key in three shards; and one that is empty.
    Golden {
        name: "ribbon-7",
        make: || ribbon(5000, 0.01, 5000),
        members: Members::Built(5000),
        payload: 0xb770_9bca_9391_e194,
        false_positives: &[37, 72, 79, 139, 140, 203, 222, 228, 375, 432],
    },
    Golden {
        name: "ribbon-1-shards",
        make: || ribbon(5_000_000, 0.5, 3000),
        members: Members::Built(3000),
        payload: 0xa477_d64b_1964_6242,
        false_positives: &[4, 5, 6, 7, 8, 9, 10, 11, 14, 15],
    },
    Golden {
        name: "ribbon-32",
        make: || ribbon(100, 3e-10, 100),
        members: Members::Built(100),
        payload: 0x7c6b_509c_8703_8032,
        false_positives: &[],
    },
    // Large enough to be filled in several stretches.
    Golden {
        name: "ribbon-stretches",
        make: || ribbon(70_000, 0.5, 70_000),
        members: Members::Built(70_000),
        payload: 0xc4e7_2b1f_44bb_256b,
        false_positives: &[2, 3, 4, 10, 11, 12, 16, 18, 19, 27],
    },
    Golden {
        name: "ribbon-empty",
        make: || ribbon(0, 0.01, 0),
        members: Members::Built(0),
        payload: 0xfa5c_46b5_0803_1946,
        false_positives: &[],
    },
    // Went on past its planned keys in a growing part.
    Golden {
        name: "blocked-grown",
        make: || {
            let plan = Plan::builder(Kind::Blocked).items(100).rate(0.01).growing();
            filter(plan).into_growing().unwrap()
        },
        members: Members::Beyond(300),
        payload: 0xbd71_fc9f_899d_7f7b,
        false_positives: &[215, 777, 1302, 1863, 3050, 4397, 4469, 4644, 6006, 6725],
    },
    // Changed since it was built: keys were added and removed, and some that it claims are denied.
    Golden {
        name: "ribbon-living",
        make: || living(*ribbon(1000, 0.01, 0).plan(), Hasher::default()),
        members: Members::Changed,
        payload: 0xdd78_e84e_1e9e_b75a,
        false_positives: &[489, 548, 739, 782, 807, 902, 980, 1337, 1354, 1747],
    },
    Golden {
        name: "texts-and-auto-clear",
        make: || {
            let mut filter = filter(blocked(1024, 1, 8));
            filter.set_note("pages of May\nfound on 3 machines \u{2713}").unwrap();
            filter.set_normalization("lower case, no query").unwrap();
            filter.set_auto_clear(Some(0.75)).unwrap();
            filter
        },
        members: Members::Words(100),
        payload: 0x66e0_f74b_2bc6_d01d,
        false_positives: &[47, 106, 157, 208, 217, 294, 383, 402, 437, 491],
    },
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

impl Golden {
    fn path(&self) -> PathBuf {
        folder().join(self.name).with_extension("ib")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn write(filter: &Filter) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).expect("a Vec takes every byte");
    bytes
}

/// The first ten i for which "absent i" is claimed.
fn false_positives(filter: &Filter) -> Vec<u64> {
    (0..1_000_000).filter(|i| filter.contains(format!("absent {i}"))).take(10).collect()
}

/// The payload: the last section, which ends the file.
fn payload(bytes: &[u8]) -> &[u8] {
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let entry = &bytes[128 + 32 * (sections - 1)..][..32];
    assert_eq!(&entry[..4], b"BITS");
    &bytes[u64::from_le_bytes(entry[8..16].try_into().unwrap()) as usize..]
}

#[test]
fn the_folder_holds_these_files_and_no_others() {
    let mut expected: Vec<_> = GOLDEN.iter().map(Golden::path).collect();
    let paths = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    // Folders hold the files of other programs: see redisbloom.rs.
    let mut found: Vec<_> = paths.filter(|path| path.is_file()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let total: usize = GOLDEN.iter().map(|golden| golden.bytes().len()).sum();
    assert!(total < 200_000, "{total} bytes");
}

#[test]
fn the_same_inserts_write_the_same_bytes() {
    // How many keys go into a base, and how a growing part starts, is the planner's.
    for golden in GOLDEN.iter().filter(|golden| !matches!(golden.members, Members::Beyond(_))) {
        let bytes = golden.bytes();
        let old = OpenOptions::new().secret(&KEY).view(&bytes).unwrap();
        let mut new = start(*old.plan(), *old.hasher(), golden.members);
        new.set_note(old.note()).unwrap();
        new.set_normalization(old.normalization()).unwrap();
        new.set_auto_clear(old.auto_clear()).unwrap();
        golden.members.apply(&mut new, one_by_one);
        assert!(write(&new) == bytes, "{}: other bytes", golden.name);

        let mut batched = start(*old.plan(), *old.hasher(), golden.members);
        batched.set_auto_clear(old.auto_clear()).unwrap();
        golden.members.apply(&mut batched, at_once);
        assert!(batched == *old, "{}: other bits in a batch", golden.name);
    }
}

#[test]
fn every_way_of_opening_gives_the_pinned_answers() {
    for golden in GOLDEN {
        let bytes = golden.bytes();
        format::verify(&bytes).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert_eq!(xxh3_64(payload(&bytes)), golden.payload, "{}: the payload", golden.name);
        let ways = [
            OpenOptions::new().secret(&KEY).read_from(&bytes[..]).unwrap(),
            OpenOptions::new().secret(&KEY).view(&bytes).unwrap().clone(),
            OpenOptions::new().secret(&KEY).open(golden.path()).unwrap(),
            OpenOptions::new().secret(&KEY).writable(true).open(golden.path()).unwrap(),
        ];
        for filter in &ways {
            assert!(*filter == ways[0], "{}: ways differ", golden.name);
            for key in golden.members.keys() {
                assert!(filter.contains(&key), "{}: a member is denied: {key:?}", golden.name);
            }
            assert_eq!(false_positives(filter), golden.false_positives, "{}", golden.name);
        }
    }
}

#[test]
fn what_is_not_bits_is_read_as_it_was_written() {
    let by_name = |name| GOLDEN.iter().find(|golden| golden.name == name).unwrap().bytes();
    let bytes = by_name("texts-and-auto-clear");
    let texts = Filter::view(&bytes).unwrap();
    assert_eq!(texts.note(), "pages of May\nfound on 3 machines \u{2713}");
    assert_eq!(texts.normalization(), "lower case, no query");
    assert_eq!(texts.auto_clear(), Some(0.75));
    assert_eq!((texts.plan().items(), texts.plan().bits()), (102, 1024));
    assert!(texts.inserted() > 90 && texts.inserted() <= 100, "{}", texts.inserted());

    let bytes = by_name("bitmap-sparse");
    let sparse = Filter::view(&bytes).unwrap();
    assert!(sparse.plan().is_sparse());
    assert_eq!((sparse.occupied(), sparse.inserted()), (5101, 5101));
    assert_eq!(sparse.as_bitmap().unwrap().iter().last(), Some((1 << 40) - 1));

    for (name, kind, width) in [
        ("counting-2", Kind::Counting, 2),
        ("counting-3", Kind::Counting, 3),
        ("counting-4", Kind::Counting, 4),
        ("counting-8", Kind::Counting, 8),
        ("cuckoo-9", Kind::Cuckoo, 9),
        ("cuckoo-23-removed", Kind::Cuckoo, 23),
        ("cuckoo-40", Kind::Cuckoo, 40),
        ("ribbon-7", Kind::Ribbon, 7),
        ("ribbon-1-shards", Kind::Ribbon, 1),
        ("ribbon-32", Kind::Ribbon, 32),
        ("ribbon-stretches", Kind::Ribbon, 1),
        ("ribbon-living", Kind::Ribbon, 7),
    ] {
        let bytes = by_name(name);
        let plan = *Filter::view(&bytes).unwrap().plan();
        assert_eq!((plan.kind(), plan.width()), (kind, width), "{name}");
    }
    let bytes = by_name("counting-removed");
    let counting = Filter::view(&bytes).unwrap();
    assert_eq!([150, 320, 380].map(|i| counting.count(format!("member {i}"))), [1, 1, 2]);
    let bytes = by_name("cuckoo-23-removed");
    let cuckoo = Filter::view(&bytes).unwrap();
    assert_eq!([100, 400, 455, 480].map(|i| cuckoo.count(format!("member {i}"))), [0, 1, 1, 2]);
    assert_eq!((cuckoo.occupied(), cuckoo.inserted()), (390, 350));

    let bytes = by_name("ribbon-1-shards");
    assert_eq!(Filter::view(&bytes).unwrap().occupied(), 3000);
    assert_eq!(payload(&bytes).last_chunk(), Some(&3_u64.to_le_bytes()), "three shards");

    let bytes = by_name("ribbon-living");
    let list = Filter::view(&bytes).unwrap();
    let parts = list.as_overlay().unwrap();
    assert_eq!((list.occupied(), parts.added()), (1000, 20));
    assert!((1000..1100).all(|i| !list.contains(format!("member {i}"))));
    assert!((0..300).all(|i| !list.contains(format!("absent {i}"))));
    assert!(parts.excluded() > 100, "{}", parts.excluded());

    let bytes = by_name("blocked-grown");
    let grown = Filter::view(&bytes).unwrap();
    assert_eq!((grown.plan().items(), grown.plan().rate()), (100, 0.01));
    assert_eq!(grown.as_grown().unwrap().beyond(), 200);
    assert_eq!(grown.inserted(), 300);

    let bytes = by_name("window-keys");
    let window = Filter::view(&bytes).unwrap();
    assert_eq!(window.plan().span(), Some(Span::Items(300)));
    assert_eq!(u64::from_le_bytes(payload(&bytes)[8..16].try_into().unwrap()), 4);
    let forgotten = (0..500).filter(|i| !window.contains(format!("member {i}"))).count();
    assert!(forgotten > 480, "{forgotten} of 500 forgotten");
    let bytes = by_name("window-time");
    let mut window = Filter::view(&bytes).unwrap().clone();
    assert_eq!(window.plan().span(), Some(Span::Millis(1000)));
    assert_eq!((window.plan().generations(), window.plan().items()), (4, 400));
    window.advance(1_700_000_001_299).unwrap();
    assert!(window.contains("member 100"), "the clock stands where it stood");
    window.advance(1_700_000_002_000).unwrap();
    let forgotten = (100..200).filter(|i| !window.contains(format!("member {i}"))).count();
    assert!(forgotten > 90 && window.contains("member 300"), "{forgotten} of 100 forgotten");
}

/// Too large to keep as a file: the payload starts on a page, and its blocks make two ranges.
#[test]
fn a_filter_of_two_ranges_is_the_file_it_was() {
    let mut filter = filter(blocked(16_384 * 512, 2, 16));
    assert_eq!((filter.plan().bits(), filter.plan().lines()), (16_384 * 512, 2));
    for i in 0..400_000 {
        filter.insert(format!("member {i}")).unwrap();
    }
    let bytes = write(&filter);
    assert_eq!(bytes.len(), 4096 + (1 << 20));
    assert_eq!(payload(&bytes).len(), 1 << 20);
    assert_eq!(xxh3_64(payload(&bytes)), 0xcc96_51ce_d491_d5d7);
    assert_eq!(
        false_positives(&filter),
        [21972, 22716, 30356, 38075, 41732, 50759, 64426, 68114, 71513, 72930]
    );
}

/// The dump in the document, byte for byte what is written today.
#[test]
fn the_example_in_the_document_is_what_is_written() {
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let document = fs::read_to_string(document).expect("the document");
    let mut dump = Vec::new();
    // Lines as xxd prints them: an offset of eight digits, a colon, eight groups of two bytes, text.
    for line in document.lines() {
        let Some((offset, rest)) = line.split_once(": ") else { continue };
        let Ok(offset) = usize::from_str_radix(offset, 16) else { continue };
        assert_eq!(offset, dump.len(), "a line is missing");
        let digits: String = rest[..39].split(' ').collect();
        for at in (0..digits.len()).step_by(2) {
            dump.push(u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"));
        }
    }
    let plan = Plan::builder(Kind::Blocked).items(64).bytes(128).rate(0.01).lines(1).probes(12);
    let mut filter = filter(plan);
    filter.set_note("example").unwrap();
    filter.insert("alice").unwrap();
    assert_eq!(dump, write(&filter));
    // The words that the text derives from the digest are those of the dump.
    for (i, word) in dump[0x140..].as_chunks::<8>().0.iter().enumerate() {
        let line = format!("word {i} at {:x} = {:016x}", 0x140 + 8 * i, u64::from_le_bytes(*word));
        assert!(document.contains(&line), "{line}");
    }
}

/// The payloads that the document works out for kinds without a dump.
#[test]
fn the_words_of_the_other_examples_are_what_is_written() {
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let document = fs::read_to_string(document).expect("the document");
    let counting = |width| {
        let plan = Plan::builder(Kind::Counting).items(9).bytes(128).width(width);
        plan.lines(1).probes(8).build().unwrap()
    };
    let cuckoo = Plan::builder(Kind::Cuckoo).items(8).rate(0.01).build().unwrap();
    for (name, plan, from) in [
        ("counting", counting(3), 0x100),
        ("counting, w = 4,", counting(4), 0x100),
        ("cuckoo", cuckoo, 0xc0),
    ] {
        let mut filter = Filter::new(plan).unwrap();
        filter.insert("alice").unwrap();
        filter.insert("alice").unwrap();
        let bytes = write(&filter);
        for (i, word) in bytes[from..].as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let line = format!("{name} word {i} at {:x} = {word:016x}", from + 8 * i);
            assert!(document.contains(&line), "{line}");
        }
    }
}

#[test]
#[ignore = "writes golden files that are missing, and prints what to pin"]
fn missing_golden_files_are_written() {
    if std::env::var_os("INBLOOM_WRITE_GOLDEN").is_none() {
        return; // `./test --long` runs all that is ignored.
    }
    for golden in GOLDEN {
        if !golden.path().exists() {
            let mut filter = (golden.make)();
            golden.members.apply(&mut filter, one_by_one);
            fs::write(golden.path(), write(&filter)).unwrap();
        }
        let bytes = golden.bytes();
        let filter = OpenOptions::new().secret(&KEY).view(&bytes).unwrap();
        println!(
            "{}: payload {:#018x}, false positives {:?}",
            golden.name,
            xxh3_64(payload(&bytes)),
            false_positives(&filter)
        );
    }
}
