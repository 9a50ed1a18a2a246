//! Filters on their way: SCANDUMP and LOADCHUNK, piece by piece, DUMP and RESTORE at once.
//!
//! **Forms.** Filters that are RedisBloom's (all of CF.*, and those of BF.* that came from it or
//! were reserved with KIND redisbloom) are dumped in its form, which it loads. Our own are dumped
//! in ours, drawn in `value/dump_format.rs`. LOADCHUNK and RESTORE take both, which differ in the
//! first bytes. In both forms iterator 0 gives a header with iterator 1; what comes with a later
//! iterator is a piece of the body that ends before byte iterator - 1 of it. A piece has at most a
//! MiB. (Iterators of our form may carry the number of a copy in addition.)
//!
//! **Dumping while others add.** No key that was acknowledged before iterator 0 was asked for is
//! missing from the copy. Where bits are only ever added (the base of our filters, RedisBloom's
//! Bloom filters) pieces are copied from the filter as it is, so that a dump takes no memory. They
//! may have keys that the header, which is older, does not count. Where entries move about (cuckoo
//! filters of more than one piece, what a filter of ours has grown by, filters of other kinds) a
//! copy is taken at iterator 0, which others that begin before the filter changes share. It is kept
//! until nobody has asked for a piece for a minute; if it is gone, that is an error and not an end.
//!
//! **Several dumps of one filter at once.** Each goes on with its own copy. In our own form the
//! number of the copy is a part of the iterators. In RedisBloom's form iterators are positions,
//! which RedisBloom reads, so that the connection tells which copy is meant. A client that goes on
//! over another connection is served if there is but one dump, and gets an error otherwise.
//!
//! **Loading.** What arrives is out of sight until all of it has: pieces come in any order,
//! repeated, of any size. Then the filter is checked, and published if its name is still free. What
//! is not completed within ten minutes of its last piece is forgotten. (RedisBloom serves a filter
//! from its header on, and answers that keys are missing which have not arrived yet.) A piece for a
//! filter that is there is taken if it changes nothing, as it happens when a client repeats its
//! last one, and refused otherwise. (RedisBloom overwrites the bits.)

mod loadchunk;
mod restore;
mod scandump;

use super::stored;
use crate::command::{Call, Command, Cost, Flag, Flags, Keys, OnStore, Request};
use crate::keyspace::Key;
use crate::session_state::SessionState;

pub use loadchunk::{bloom_loadchunk, cuckoo_loadchunk};
pub use scandump::{bloom_scandump, cuckoo_scandump};

/// The rows of DUMP and RESTORE; those of SCANDUMP and LOADCHUNK are with BF.* and CF.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly]),
        categories: &["keyspace"],
        keys: Keys::ONE,
        summary: "Returns a filter as one string, for RESTORE",
        syntax: "key",
        group: "generic",
        complexity: "O(N) for the N bytes of the filter",
        handler: restore::dump,
        cost: Cost::By(dump_is_heavy),
        on_store: OnStore::Refused(stored::PULL),
        ..Command::NONE
    },
    Command {
        name: "restore",
        arity: -4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        is_restricted: true,
        categories: &["keyspace", "dangerous"],
        keys: Keys::ONE,
        summary: "Creates a filter from a reply of DUMP",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        group: "generic",
        complexity: "O(N) for the N bytes of the filter",
        handler: restore::restore,
        cost: Cost::By(|request, _| {
            request.arguments.get(3).is_some_and(|data| data.len() > LARGE)
        }),
        on_store: OnStore::Refused(stored::PUSH),
        ..Command::NONE
    },
];

/// The bytes of a piece. RedisBloom takes any size, and gives up to 16 MiB.
const PIECE: usize = 1 << 20;
/// To copy and check so many bytes takes about 100 microseconds.
const LARGE: usize = 256 << 10;

/// A piece of a MiB takes some hundred microseconds to be copied, checked and replied. Of some
/// filters all is copied at the beginning.
pub fn dump_is_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    request.entry.as_ref().is_some_and(|entry| entry.value.length() > LARGE as u64)
}

/// A large piece, or any that may be the last one of a filter which has to be read then.
pub fn load_is_heavy(request: &Request<'_>, session: &SessionState) -> bool {
    let key = Key { database: session.database, name: &request.arguments[1] };
    let staged = || request.server.transfers.staged(key, request.now);
    request.arguments[3].len() > LARGE
        || staged().is_some_and(|staged| staged.file_bytes > LARGE as u64)
}

fn key_of<'a>(call: &Call<'a>) -> Key<'a> {
    let name = call.arguments.get(1).expect("the table says that there is one");
    Key { database: call.session.database, name }
}
