//! A word as a row of small counters: what the counting kind does to all of them at once.

/// Counters of one width, and arithmetic on all those of a word at once. A *mark* is the lowest bit
/// of a counter, and stands for it. Nothing carries from one counter into the next.
///
/// Counters of three bits leave the highest bit of a word over. It is zero, but for damaged files: then
/// no result is wrong but in this bit, and nothing overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Bits of a counter.
    pub width: u32,
    /// The lowest bit of every counter: all marks.
    pub lowest: u64,
    /// The highest bit of every counter.
    highest: u64,
    /// All the other bits of every counter.
    lower: u64,
}

impl Counters {
    pub(crate) fn new(width: u32) -> Counters {
        assert!(matches!(width, 1..=4 | 8), "counters of {width} bits");
        let lowest = lowest(width);
        let highest = lowest << (width - 1);
        Counters { width, lowest, highest, lower: highest - lowest }
    }

    /// Counters of a word.
    #[inline]
    pub(crate) fn per_word(self) -> u32 {
        per_word(self.width)
    }

    /// The bits of a word that no counter has.
    #[inline]
    pub(crate) fn spare(self) -> u64 {
        !(self.highest | self.lower)
    }

    #[inline]
    pub(crate) fn maximum(self) -> u64 {
        (1 << self.width) - 1
    }

    /// The marks of the counters above zero.
    #[inline]
    pub(crate) fn above_zero(self, word: u64) -> u64 {
        // The lower bits of a counter, and the most that they can hold: this sum reaches the
        // highest bit exactly if they are not all zero.
        let low = (word & self.lower) + self.lower;
        self.to_lowest(low | word)
    }

    /// The marks of the counters at their maximum.
    #[inline]
    pub(crate) fn at_maximum(self, word: u64) -> u64 {
        self.lowest ^ self.above_zero(!word)
    }

    /// Raises the marked counters, except at the maximum.
    #[inline]
    pub(crate) fn raise(self, word: u64, which: u64) -> u64 {
        word + (which & !self.at_maximum(word))
    }

    /// Lowers the marked counters, none of which is zero, except at the maximum.
    #[inline]
    pub(crate) fn lower(self, word: u64, which: u64) -> u64 {
        word - (which & !self.at_maximum(word))
    }

    /// Adds counter by counter, up to the maximum.
    #[inline]
    pub(crate) fn add(self, here: u64, there: u64) -> u64 {
        let low = (here & self.lower) + (there & self.lower);
        let sum = low ^ ((here ^ there) & self.highest);
        // A counter overflows if both highest bits were set, or one was and the sum's is not.
        let over = (here & there) | ((here | there) & !sum);
        sum | self.spread(self.to_lowest(over))
    }

    /// The smaller of each two counters.
    #[inline]
    pub(crate) fn min(self, here: u64, there: u64) -> u64 {
        let low = (here | self.highest) - (there & self.lower);
        let difference = low ^ ((here ^ !there) & self.highest);
        // A counter is the smaller one if the subtraction borrows from beyond its highest bit.
        let borrows = (!here & there) | ((!here | there) & difference);
        let smaller = self.spread(self.to_lowest(borrows));
        (here & smaller) | (there & !smaller)
    }

    /// The smallest of the marked counters; the maximum if none is.
    pub(crate) fn smallest(self, word: u64, mut which: u64) -> u32 {
        let mut smallest = self.maximum();
        while which != 0 {
            smallest = smallest.min(word >> which.trailing_zeros() & self.maximum());
            which &= which - 1;
        }
        smallest as u32
    }

    /// The marks of the counters whose highest bit is set.
    #[inline]
    fn to_lowest(self, word: u64) -> u64 {
        (word & self.highest) >> (self.width - 1)
    }

    /// All bits of the marked counters.
    #[inline]
    fn spread(self, marks: u64) -> u64 {
        marks * self.maximum()
    }
}

/// Returns how many counters of so many bits a word has.
pub(crate) const fn per_word(width: u32) -> u32 {
    64 / width
}

/// Returns the lowest bit of every counter of a word.
pub(crate) const fn lowest(width: u32) -> u64 {
    (u64::MAX >> (64 % width)) / ((1 << width) - 1)
}
