//! Whole filters between a server and a file: push, pull, and merge in bulk.
//!
//! A bulk merge is about a thousand times as fast as inserts, for a server: keys are inserted into a
//! local filter of the same plan, and its chunks are merged into those of the server, each with one
//! transaction:
//!
//! ```text
//! MULTI
//! SET ib:{tag}:d17 <the local chunk>
//! BITOP OR ib:{tag}:17 ib:{tag}:17 ib:{tag}:d17
//! UNLINK ib:{tag}:d17
//! GETBIT ib:{tag}:17 <its sentinel>
//! EXEC
//! ```
//!
//! The local chunk has no sentinels. Merged into a chunk that the server has lost, it does not make it
//! look whole; the sentinel that is read shows it. It is a transaction so that a failover cannot come
//! between the two halves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use inbloom::internals::chunks::blocked_bytes;
use inbloom::internals::file::BlockedWriter;
use inbloom::internals::format::hash_of;
use inbloom::internals::kinds::blocked::{Piece, Pieces};
use inbloom::{Filter, Kind, Plan};
use redis::Value;

use crate::client::{Client, Job, unexpected};
use crate::command::Commands;
use crate::error::{Error, Result};
use crate::filter::{RedisFilter, Spec, write_sentinel};
use crate::lane::Access;
use crate::layout::{Layout, clear_sentinels};
use crate::metadata::Pushed;

/// Chunks that are pulled at once: enough for every node to have some.
const PULLED_AT_ONCE: u64 = 32;

impl RedisFilter {
    /// Creates a filter from a local one of kind blocked: its bits, its hash and its texts. `progress`
    /// is called with the chunks that were sent, and with all there are.
    ///
    /// ```no_run
    /// use inbloom::Filter;
    /// use inbloom_redis::{Client, Options, RedisFilter};
    ///
    /// let client = Client::connect(&"redis://localhost:7000".parse()?, Options::default())?;
    /// RedisFilter::push(&client, "seen", &Filter::open("seen.ib")?, |_, _| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::create`]. Filters that have grown, and shards of filters, are refused.
    pub fn push(
        client: &Client,
        name: impl AsRef<[u8]>,
        local: &Filter,
        progress: impl Fn(u64, u64),
    ) -> Result<RedisFilter> {
        let bytes = bytes_of(local)?;
        let mut spec = Spec::new(*local.plan());
        spec.hasher = *local.hasher();
        spec.note = local.note().to_owned();
        spec.normalization = local.normalization().to_owned();
        spec.pushed = Some(Pushed { inserted: local.inserted(), ones: local.occupied() });
        let layout = Layout::new(&client.options().prefix, 0, &spec.plan)?;
        RedisFilter::create_from(client, name.as_ref(), &spec, &|chunk, target| {
            target.copy_from_slice(chunk_of(&layout, bytes, chunk));
            progress(chunk + 1, layout.count());
            Ok(())
        })
    }

    /// Writes the filter into a file, with its hash and its texts. The file gets its name when it is
    /// complete. `progress` is called with the chunks that were received, and with all there are.
    ///
    /// The file is the same to the byte as that of a local filter with these keys. One thing is not
    /// known on a server: how many inserts were new. Of a filter that was pushed and has not changed it
    /// is what it was, of others it is estimated from the set bits.
    ///
    /// Inserts that come meanwhile may be in the file or not.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the server has lost blocks, and if the file cannot be written.
    pub fn pull(&self, path: impl AsRef<Path>, mut progress: impl FnMut(u64, u64)) -> Result<()> {
        let path = path.as_ref();
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let plan = *self.plan();
        let mut writer = BlockedWriter::create(&partial, plan, &self.empty_like()?)?;
        let written =
            self.pull_pieces(&mut progress, |piece| Ok(writer.append(piece).map(drop)?));
        let sealed = written.and_then(|()| Ok(writer.seal().map(drop)?));
        if let Err(error) = sealed {
            // It is of no use to anybody, and the error says what matters.
            let _ = std::fs::remove_file(&partial);
            return Err(error);
        }
        Ok(writer.publish(path)?)
    }

    /// Adds all keys of a local filter of the same plan and hash. `progress` is called with the chunks
    /// that were looked at, and with all there are. Chunks without keys are not sent. It may be
    /// repeated.
    ///
    /// # Errors
    ///
    /// Refuses filters that differ, and names what. Otherwise as [`RedisFilter::insert_many`].
    pub fn merge(&self, local: &Filter, mut progress: impl FnMut(u64, u64)) -> Result<()> {
        let bytes = bytes_of(local)?;
        check_same(local, self)?;
        let count = self.chunks();
        let is_used =
            |chunk: &u64| chunk_of(&self.layout, bytes, *chunk).iter().any(|byte| *byte != 0);
        let chunks: Vec<u64> = (0..count).filter(is_used).collect();
        let mut job = Merge {
            layout: &self.layout,
            bytes,
            chunks: &chunks,
            lost: BTreeSet::new(),
            done: &mut |chunk| progress(chunk + 1, count),
        };
        let outcome = self.client.run(&mut job, chunks.len(), Access::Write);
        let lost = std::mem::take(&mut job.lost);
        self.explain(outcome, lost, Access::Write)?;
        progress(count, count);
        // BITOP makes a value that does not expire.
        let restored = self.restore_expiry();
        if matches!(restored, Err(Error::Deleted { .. })) {
            // The filter expired meanwhile, and what was merged into would stay forever.
            let _ = self.unlink_chunks();
        }
        restored
    }

    /// Reads all chunks in order, and gives them on in the pieces of a file.
    fn pull_pieces(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        mut take: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<()> {
        let (count, pieces) = (self.chunks(), Pieces::new(*self.plan()));
        let (mut buffer, mut piece, mut ones) = (Vec::new(), 0, 0);
        for first in (0..count).step_by(PULLED_AT_ONCE as usize) {
            let end = count.min(first + PULLED_AT_ONCE);
            for chunk in self.pull_chunks(first, end)? {
                buffer.extend_from_slice(&chunk);
            }
            progress(end, count);
            let mut used = 0;
            while piece < pieces.count() && buffer.len() - used >= pieces.bytes(piece) {
                let bytes = &buffer[used..][..pieces.bytes(piece)];
                let mut read = pieces.read(piece, bytes)?;
                ones += read.occupied();
                used += bytes.len();
                piece += 1;
                if piece == pieces.count() {
                    read.set_inserted(self.inserted(ones));
                }
                take(&read)?;
            }
            buffer.drain(..used);
        }
        Ok(())
    }

    /// Reads chunks, without their sentinels.
    fn pull_chunks(&self, first: u64, end: u64) -> Result<Vec<Vec<u8>>> {
        let mut chunks = vec![Vec::new(); (end - first) as usize];
        let mut lost = BTreeSet::new();
        let mut job = Pull { filter: self, first, chunks: &mut chunks, lost: &mut lost };
        let outcome = self.client.run(&mut job, (end - first) as usize, Access::Read);
        self.explain(outcome, lost, Access::Read)?;
        Ok(chunks)
    }

    /// How many inserts were new, as far as it is known, if so many bits are set.
    fn inserted(&self, ones: u64) -> u64 {
        match self.metadata.pushed {
            Some(pushed) if pushed.ones == ones => pushed.inserted,
            _ => self.plan().estimate(ones).items.round() as u64,
        }
    }

    /// An empty filter with this one's hash and texts.
    fn empty_like(&self) -> Result<Filter> {
        let plan = Plan::builder(Kind::Blocked).items(1).build()?;
        let mut like = Filter::with_hasher(plan, *self.hasher())?;
        like.set_note(self.note())?;
        like.set_normalization(self.normalization())?;
        Ok(like)
    }
}

/// The bytes of a chunk among those of a filter.
fn chunk_of<'a>(layout: &Layout, bytes: &'a [u8], chunk: u64) -> &'a [u8] {
    &bytes[layout.chunks.start(chunk) as usize..][..layout.chunks.bytes(chunk)]
}

fn bytes_of(local: &Filter) -> Result<&[u8]> {
    blocked_bytes(local).ok_or_else(|| {
        let (kind, verb) = (local.plan().kind(), "be kept in Redis");
        let remedy = "use a whole filter of kind blocked that has not grown";
        inbloom::Error::Unsupported { kind, verb, remedy }.into()
    })
}

/// Names what differs between a local filter and one on a server.
fn check_same(local: &Filter, remote: &RedisFilter) -> Result<()> {
    let shape = |plan: &Plan| [plan.bits(), plan.probes().into(), plan.lines().into()];
    let (here, there) = (shape(local.plan()), shape(remote.plan()));
    let hashes = [local.hasher(), remote.hasher()].map(|hasher| {
        let (scheme, value) = hash_of(hasher);
        [u64::from(scheme), value]
    });
    let fields = ["bits", "probes", "lines", "hash scheme", "hash seed or key"];
    let left = here.into_iter().chain(hashes[0]);
    let right = there.into_iter().chain(hashes[1]);
    let mut pairs = fields.into_iter().zip(left.zip(right));
    match pairs.find(|(_, (left, right))| left != right) {
        None => Ok(()),
        Some((field, (left, right))) => {
            let (left, right) = (left.to_string(), right.to_string());
            Err(inbloom::Error::Mismatch { field, left, right }.into())
        }
    }
}

/// Merges chunks of a local filter into those of the server.
struct Merge<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
    chunks: &'a [u64],
    lost: BTreeSet<u64>,
    done: &'a mut dyn FnMut(u64),
}

impl Job for Merge<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.layout.slot(self.chunks[item])
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        let chunk = self.chunks[item];
        let (key, delta) = (self.layout.key(chunk), self.layout.delta_key(chunk));
        commands.command(&[b"MULTI"]);
        commands.command(&[b"SET", delta.as_bytes(), chunk_of(self.layout, self.bytes, chunk)]);
        commands.begin(5);
        commands.text("BITOP");
        commands.text("OR");
        commands.key(key);
        commands.key(key);
        commands.text(&delta);
        commands.command(&[b"UNLINK", delta.as_bytes()]);
        write_sentinel(self.layout, chunk, commands);
        commands.command(&[b"EXEC"]);
    }

    fn replies(&self) -> usize {
        6
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let chunk = self.chunks[item];
        let Some(Value::Array(results)) = replies.last() else {
            return Err(unexpected("the server", "EXEC", replies));
        };
        if results.last() != Some(&Value::Int(1)) {
            self.lost.insert(chunk);
            return Err(Error::Lost { name: String::new(), lost: vec![chunk], chunks: 0 });
        }
        (self.done)(chunk);
        Ok(())
    }
}

/// Reads chunks from the first on.
struct Pull<'a> {
    filter: &'a RedisFilter,
    first: u64,
    chunks: &'a mut [Vec<u8>],
    lost: &'a mut BTreeSet<u64>,
}

impl Job for Pull<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.filter.layout.slot(self.first + item as u64)
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        // A range, so that a value that somebody else has made larger does not fill our memory.
        let (layout, chunk) = (&self.filter.layout, self.first + item as u64);
        commands.begin(4);
        commands.text("GETRANGE");
        commands.key(layout.key(chunk));
        commands.number(0);
        commands.number(layout.chunks.bytes(chunk) as u64 - 1);
    }

    fn batch(&self) -> usize {
        4
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let chunk = self.first + item as u64;
        let Value::BulkString(bytes) = &replies[0] else {
            return Err(unexpected("the server", "GETRANGE", replies));
        };
        let mut bytes = bytes.clone();
        let whole = bytes.len() == self.filter.layout.chunks.bytes(chunk);
        if !(clear_sentinels(&mut bytes) && whole) {
            self.lost.insert(chunk);
            return Err(Error::Lost { name: String::new(), lost: vec![chunk], chunks: 0 });
        }
        self.chunks[item] = bytes;
        Ok(())
    }
}
