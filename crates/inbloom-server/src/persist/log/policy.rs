//! When changes count as kept.

/// When a change is acknowledged, and when the disk is asked to keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fsync {
    /// Acknowledged when it is on the disk.
    Always,
    /// When the system has it; every second the disk is asked to keep what there is.
    #[default]
    EverySecond,
    /// When the system has it, which writes it to the disk when it likes.
    No,
}

impl Fsync {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Fsync); 3] =
        [("always", Fsync::Always), ("everysec", Fsync::EverySecond), ("no", Fsync::No)];

    /// As the option and CONFIG SET name it.
    pub fn parse(name: &str) -> Option<Fsync> {
        Fsync::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let of = |(_, policy): &(&str, Fsync)| *policy == self;
        Fsync::NAMES.into_iter().find(of).map_or("", |(name, _)| name)
    }
}
