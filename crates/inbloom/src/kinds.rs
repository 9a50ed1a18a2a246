//! The structures themselves, a folder and a row each. They hold digests and know nothing of keys.

pub mod bitmap;
pub mod blocked;
pub(crate) mod buckets;
pub mod classic;
pub mod counting;
pub mod cuckoo;
#[cfg(feature = "example-kind")]
mod prints;
pub(crate) mod racing;
pub mod ribbon;
pub(crate) mod row;
pub mod scalable;
pub mod window;

pub(crate) use row::Row;

/// Every kind, in the order of their numbers. To add one, write its folder and its line here.
pub(crate) static KINDS: &[&Row] = &[
    &bitmap::ROW,
    &classic::ROW,
    &blocked::ROW,
    &counting::ROW,
    &cuckoo::ROW,
    &scalable::ROW,
    &window::ROW,
    &ribbon::ROW,
    #[cfg(feature = "example-kind")]
    &prints::ROW,
];
