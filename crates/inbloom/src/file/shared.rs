//! Opening a file for many threads to change, checked in the same pass.

use std::io::BufReader;
use std::path::Path;

use super::{map, open_file, privately};
use crate::digest::Hasher;
use crate::error::Result;
use crate::format;
use crate::kinds::blocked::{Shape, SharedBlocked, check_reserved};
use crate::storage::Order;

/// Opens a blocked filter for many threads to change, mapped privately as by
/// [`OpenOptions::writable`](super::OpenOptions::writable), and with a shape of its own: see [`SharedBlocked::share_shape`].
/// Refused if its keys were hashed otherwise than by `hasher`.
///
/// All of it is checked: the payload against its checksum, and its reserved bits in the same pass.
pub fn open_shared(path: impl AsRef<Path>, hasher: &Hasher) -> Result<SharedBlocked> {
    let path = path.as_ref();
    let file = open_file(path)?;
    let Some(map) = map(&file, path)? else {
        let filter = format::read(BufReader::new(file), hasher.key())?;
        hasher.check_same(filter.hasher())?;
        return SharedBlocked::from_filter(filter);
    };
    let parsed = format::parse(&map)?;
    Shape::new(*parsed.plan())?; // Another kind is refused before all of it is read.
    let cells = privately(&file, path, &parsed, map.len())?;
    // Here, and not through the other map: what was read once needs no page fault when it is used.
    cells.expect(Order::Ascending);
    let checked = parsed.check_payload(cells.bytes(), |piece| check_reserved(0, piece));
    cells.expect(Order::Random);
    checked?;
    let filter = parsed.into_filter(cells, hasher.key())?;
    hasher.check_same(filter.hasher())?;
    SharedBlocked::from_checked(filter)
}
