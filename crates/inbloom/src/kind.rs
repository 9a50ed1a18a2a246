//! The number of a kind, and what a kind can do.
//!
//! A [`Kind`] is a number that files and programs use. A row of the table in `kinds.rs` belongs to
//! it: its name, its [`Abilities`], its planner and its constructors. Each kind declares its
//! constant and its row in its own folder. All other code checks abilities and does not name kinds.
//! A new kind is therefore a folder and a line of the table.

/// The structure behind a filter.
///
/// Programs compare kinds with `==`, match on their constants, and check what they can do:
///
/// ```
/// use inbloom::Kind;
///
/// let names: Vec<&str> =
///     Kind::ALL.iter().filter(|kind| kind.can_remove()).map(|kind| kind.name()).collect();
/// assert!(names.contains(&"counting") && !names.contains(&"blocked"));
/// assert_eq!("blocked".parse::<Kind>()?, Kind::default());
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(u16);

impl Kind {
    /// Creates the kind of a number. The number is on disk: it is never reused.
    pub(crate) const fn new(id: u16) -> Kind {
        Kind(id)
    }

    pub(crate) const fn id(self) -> u16 {
        self.0
    }

    /// Returns whether filters of another program have this kind: see [`interop`](crate::interop).
    #[must_use]
    pub const fn is_foreign(self) -> bool {
        // Numbers from 0xf000 on are for experiments.
        64 <= self.0 && self.0 < 0xf000
    }
}

/// What a kind can do and has. [`Kind`]'s methods of nearly the same names document each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    pub removes: bool,
    pub merges: bool,
    pub is_static: bool,
    pub grows: bool,
    pub outgrows: bool,
    pub counts: bool,
    pub is_exact: bool,
    pub forgets: bool,
    pub keeps_rate: bool,
    pub may_refuse: bool,
    pub builds_in_parts: bool,
    pub foresees_pages: bool,
    /// Whether keys set bits and queries test them. The plan then has a number of probes.
    pub probes: bool,
    /// Whether the probes of a key lie in one cache line or two. The plan then has a number of
    /// lines.
    pub lines: bool,
    /// Whether cells may have more than one bit. The plan then has their width.
    pub wide: bool,
    /// Whether that width can be chosen.
    pub chooses_width: bool,
    /// Whether lists and messages leave the kind out. It works if its name is given.
    pub is_experimental: bool,
    /// If the kind cannot be divided into shards: the reason.
    pub undivided: Option<&'static str>,
    /// The layout of its payload in files. Lower numbers were earlier layouts, which are no longer
    /// read. (A sparse bitmap has a layout of its own: see `format.rs`.)
    pub layout: u16,
}

impl Abilities {
    /// The abilities of a kind that only inserts keys one by one until its rate is too high.
    pub(crate) const NONE: Abilities = Abilities {
        removes: false,
        merges: false,
        is_static: false,
        grows: false,
        outgrows: false,
        counts: false,
        is_exact: false,
        forgets: false,
        keeps_rate: false,
        may_refuse: false,
        builds_in_parts: false,
        foresees_pages: false,
        probes: false,
        lines: false,
        wide: false,
        chooses_width: false,
        is_experimental: false,
        undivided: None,
        layout: 0,
    };
}

/// Words about a kind that `inbloom info` and `inbloom plan` print.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Labels {
    /// The letter that draws the kind's curve.
    pub letter: char,
    /// Names what the bits are bits of. None if their number has no meaning for users.
    pub bits: Option<&'static str>,
    /// Names the cells that are in use.
    pub in_use: &'static str,
    /// Names the arrays that a profile reads one by one, if there are several.
    pub arrays: &'static str,
    /// Explains why no filter of the kind can hold too many keys, if that is so.
    pub never_overfull: Option<&'static str>,
    /// Explains why the current rate is above the target.
    pub above_target: &'static str,
}

impl Labels {
    /// The words of a kind that is an array of bits.
    pub(crate) const BITS: Labels = Labels {
        letter: '?',
        bits: Some(""),
        in_use: "bits set",
        arrays: "",
        never_overfull: None,
        above_target: ": it holds more keys than planned",
    };
}
