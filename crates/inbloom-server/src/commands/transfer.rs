//! Copies of filters: SCANDUMP and LOADCHUNK in chunks, DUMP and RESTORE as a whole.
//!
//! **Forms.** Filters that are RedisBloom's (all of CF.*, and those of BF.* that came from it or
//! were reserved with KIND redisbloom) are dumped in its form, which it loads. Our own are dumped
//! in ours, drawn in `value/dump_format.rs`. LOADCHUNK and RESTORE take both, which differ in the
//! first bytes. In both forms iterator 0 returns a header with iterator 1. Data with a later
//! iterator is a chunk of the body that ends before its byte iterator - 1. A chunk has at most a
//! MiB. (Iterators of our form may also contain the number of a copy.)
//!
//! **Dumping while others add.** The copy has every key that was acknowledged before the request
//! with iterator 0. If bits are only added (the base of our filters, RedisBloom's Bloom filters),
//! chunks are copied from the live filter, so a dump takes no memory. They may have keys that the
//! older header does not count. If entries move (cuckoo filters of more than one chunk, the growing
//! part of our filters, filters of other kinds), the server takes a copy at iterator 0. Dumps that
//! begin before the filter changes share it. The copy is dropped when no client has requested a
//! chunk for a minute. A later request is then an error, not the end of the dump.
//!
//! **Several dumps of one filter at once.** Each continues with its own copy. In our own form the
//! iterators contain the number of the copy. In RedisBloom's form iterators are positions, which
//! RedisBloom reads, so the connection determines the copy. A client that continues over another
//! connection is served if there is only one dump, and gets an error otherwise.
//!
//! **Loading.** A filter is not visible until all of it has arrived. Chunks may come in any order
//! and size, and repeatedly. Then the server checks the filter, and publishes it if its name is
//! still free. A filter that is not complete ten minutes after its last chunk is dropped.
//! (RedisBloom serves a filter as soon as its header has arrived, and reports keys as absent that
//! have not arrived yet.) For an existing filter, a chunk is accepted if it changes nothing, for
//! example when a client repeats its last one. Otherwise it is refused. (RedisBloom overwrites the
//! bits.)

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
