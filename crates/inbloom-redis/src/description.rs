//! The description of a filter on a server: written, read, changed and deleted in both its copies.
//!
//! A filter is found by its description. If only one node had it and lost its memory, the filter
//! would seem to be missing, and its keys would silently be absent. So there are two copies of the
//! text, half of all slots apart, on two nodes if there are two. If only one copy exists, the
//! filter is reported as lost.
//!
//! Two values in two slots cannot change in one step. Their order and an expiry distinguish a
//! change from a loss (`metadata.rs` has the rule):
//!
//! ```text
//! create   SET copy NX PX 60000     SET first NX     PERSIST copy
//! delete   PEXPIRE copy 60000       delete first     delete copy
//! ```
//!
//! A copy with at most a minute left is *fading*, and may be without a first. A lasting copy
//! without a first is a loss, and so is a lasting first without its copy. If a client stops in
//! between, a fading copy expires after a minute. Then there is either no value, or a first without
//! its copy, which is a loss.
//!
//! Both values are requested at once, but not read in one step. An apparent loss counts only if
//! three reads in a row find it. Then at some moment one value existed without the other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::client::{Client, Conversation, Interrupted, Job, unexpected};
use crate::command::Commands;
use crate::error::{Error, Result};
use crate::lane::Access;
use crate::layout::description_keys;
use crate::metadata::{Copies, FADING, MAX_BYTES, Metadata, Reply, Verdict};
use crate::retry::{Patience, Setback};

/// Where the first copy is among the keys of a description, and where the second.
const FIRST: usize = 0;
const SECOND: usize = 1;

/// Looks in a row that must find the same before it counts as a loss.
const LOOKS: u32 = 3;

/// The description of the filter of a name, if there is one.
#[derive(Debug)]
pub(crate) struct Description<'a> {
    client: &'a Client,
    name: &'a [u8],
    /// The keys of both copies, with their slots.
    keys: [(Vec<u8>, u16); 2],
}

impl<'a> Description<'a> {
    pub fn new(client: &'a Client, name: &'a [u8]) -> Description<'a> {
        Description { client, name, keys: description_keys(&client.options().prefix, name) }
    }

    /// Reads both copies, as often as it takes to be sure.
    pub fn look(&self) -> Result<Verdict> {
        let (mut last, mut looks) = (Verdict::Missing, 0);
        loop {
            let verdict = self.read()?.judge();
            looks = if verdict == last { looks + 1 } else { 1 };
            if looks == LOOKS || !matches!(verdict, Verdict::Half(_)) {
                return Ok(verdict);
            }
            last = verdict;
        }
    }

    /// Reads both copies once.
    pub fn read(&self) -> Result<Copies> {
        let mut job = Reading::new(&self.keys);
        let outcome = self.client.run(&mut job, self.keys.len(), Access::Read);
        match outcome.error {
            Some(error) if is_wrong_type(&error) => {
                let key = shown(&self.keys[outcome.failed.first().map_or(FIRST, |item| *item)].0);
                let found = "value of another type".to_owned();
                return Err(Error::WrongType { key, found });
            }
            Some(error) => return Err(error),
            None => {}
        }
        let invalid = |problem| Error::Metadata { name: shown(self.name), problem };
        Copies::decode(&job.found[FIRST], &job.found[SECOND]).map_err(invalid)
    }

    /// Writes both copies of a text. Returns the description that was there first, if another was.
    pub fn create(
        &self,
        json: &[u8],
        id: u64,
        expires: Option<SystemTime>,
    ) -> Result<Option<Metadata>> {
        let [(first, first_slot), (second, second_slot)] = &self.keys;
        let write = |slot: u16, command: &[&[u8]]| self.client.call(slot, Access::Write, command);
        let fading = FADING.as_millis().to_string();
        let set: [&[u8]; 6] = [b"SET", second, json, b"NX", b"PX", fading.as_bytes()];
        let mut patience = Patience::new(self.client.options().deadline);
        while write(*second_slot, &set)? == Value::Nil {
            // Another client was first. Or we were ourselves, and the reply was lost.
            if self.read()?.second.is_some_and(|copy| copy.metadata.id == id) {
                break;
            }
            match self.look()? {
                Verdict::Whole(winner) => return Ok(Some(winner.metadata)),
                Verdict::Half(_) => return Err(self.lost()),
                Verdict::Missing if patience.is_over() => {
                    let last = "another client is creating or deleting this filter, or stopped while doing \
                     so: try again in a minute"
                        .to_owned();
                    return Err(Error::Unavailable { waited: patience.waited(), last });
                }
                Verdict::Missing => patience.pause(),
            }
        }
        let left = expires.map(|time| millis_left(time).to_string());
        let mut set: Vec<&[u8]> = vec![b"SET", first, json, b"NX"];
        if let Some(left) = &left {
            set.extend([b"PX".as_slice(), left.as_bytes()]);
        }
        if write(*first_slot, &set)? == Value::Nil {
            match self.read()?.first {
                Some(first) if first.metadata.id == id => {}
                Some(winner) => return Ok(Some(winner.metadata)),
                None => return Err(Error::Deleted { name: shown(self.name) }),
            }
        }
        match expires.map(millis_at) {
            None => write(*second_slot, &[b"PERSIST", second])?,
            Some(at) => write(*second_slot, &[b"PEXPIREAT", second, at.as_bytes()])?,
        };
        // It took longer than a minute, or another client deleted the filter that it had found.
        match self.read()?.second {
            Some(copy) if copy.metadata.id == id => Ok(None),
            _ => Err(Error::Deleted { name: shown(self.name) }),
        }
    }

    /// Deletes the copies of a text, and leaves another filter's alone. Returns which of them it deleted.
    pub fn delete(&self, json: &[u8]) -> Result<[bool; 2]> {
        let fading = FADING.as_millis().to_string();
        self.transact(SECOND, json, &[b"PEXPIRE", &self.keys[SECOND].0, fading.as_bytes()])?;
        Ok([self.delete_copy(FIRST, json)?, self.delete_copy(SECOND, json)?])
    }

    /// Lets both copies of a text expire at a time, or never. Returns false if they are not both there.
    pub fn expire(&self, json: &[u8], time: Option<SystemTime>) -> Result<bool> {
        if time.is_some_and(|time| time <= SystemTime::now()) {
            // One copy would be gone before the other, as if it were lost.
            return Ok(self.delete(json)? == [true, true]);
        }
        let at = time.map(millis_at);
        // The first decides: with it the filter is there, or has expired.
        for copy in [SECOND, FIRST] {
            let key = &self.keys[copy].0;
            let is_ours = match &at {
                Some(at) => self.transact(copy, json, &[b"PEXPIREAT", key, at.as_bytes()])?,
                None => self.transact(copy, json, &[b"PERSIST", key])?,
            };
            if !is_ours {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the milliseconds until the filter expires: negative numbers as PTTL has them.
    pub fn time_to_live(&self) -> Result<i64> {
        let (key, slot) = &self.keys[FIRST];
        match self.client.call(*slot, Access::Read, &[b"PTTL", key])? {
            Value::Int(millis) => Ok(millis),
            reply => Err(unexpected(self.client.server(), "PTTL", &reply)),
        }
    }

    /// Returns the error for a filter of which one copy is gone.
    pub fn lost(&self) -> Error {
        Error::LostDescription { name: shown(self.name) }
    }

    fn delete_copy(&self, copy: usize, json: &[u8]) -> Result<bool> {
        let (key, slot) = &self.keys[copy];
        // Redis 8.4, Valkey 9.0; others have neither.
        let compared: [&[&[u8]]; 2] = [&[b"DELEX", key, b"IFEQ", json], &[b"DELIFEQ", key, json]];
        for command in compared {
            match self.client.call(*slot, Access::Write, command) {
                Ok(Value::Int(deleted)) => return Ok(deleted == 1),
                Ok(reply) => return Err(unexpected(self.client.server(), "DELEX", &reply)),
                Err(Error::Server { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.transact(copy, json, &[b"DEL", key])
    }

    /// Runs a command on a copy if it has this text, in a transaction. Returns whether it has.
    fn transact(&self, copy: usize, json: &[u8], command: &[&[u8]]) -> Result<bool> {
        let (key, slot) = &self.keys[copy];
        let attempt = |talk: &mut Conversation| -> std::result::Result<bool, Interrupted> {
            talk.ask(&[b"WATCH", key])?;
            let now = talk.ask(&[b"GET", key])?;
            if !matches!(&now, Value::BulkString(now) if now == json) {
                talk.ask(&[b"UNWATCH"])?;
                return Ok(false);
            }
            talk.ask(&[b"MULTI"])?;
            talk.ask(command)?;
            match talk.ask(&[b"EXEC"])? {
                // Another client changed it in between: look again.
                Value::Nil => Err(Interrupted::Setback(Setback::Later(
                    "another client changed the filter's description".to_owned(),
                ))),
                _ => Ok(true),
            }
        };
        self.client.converse(*slot, attempt)
    }
}

/// Reads the descriptions of many filters. Returns of each that is there the text, and whether it is
/// whole. Those that cannot be read are left out.
pub(crate) fn read_all(
    client: &Client,
    names: &[Vec<u8>],
) -> Result<Vec<Option<(Metadata, bool)>>> {
    let prefix = &client.options().prefix;
    let keys: Vec<_> = names.iter().flat_map(|name| description_keys(prefix, name)).collect();
    let mut job = Reading::new(&keys);
    match client.run(&mut job, keys.len(), Access::Read).into_result() {
        Err(error) if is_wrong_type(&error) => {}
        result => result?,
    }
    let copies = job.found.chunks_exact(2).zip(names).map(|(copies, name)| {
        let Ok(copies) = Copies::decode(&copies[FIRST], &copies[SECOND]) else { return Ok(None) };
        let verdict = match copies.judge() {
            // It may just be created or deleted.
            Verdict::Half(_) => Description::new(client, name).look()?,
            verdict => verdict,
        };
        Ok(match verdict {
            Verdict::Missing => None,
            Verdict::Whole(copy) => Some((copy.metadata, true)),
            Verdict::Half(copies) => {
                copies.first.or(copies.second).map(|copy| (copy.metadata, false))
            }
        })
    });
    copies.collect()
}

/// Reads copies, with the time that they have left.
struct Reading<'a> {
    keys: &'a [(Vec<u8>, u16)],
    found: Vec<Reply>,
}

impl Reading<'_> {
    fn new(keys: &[(Vec<u8>, u16)]) -> Reading<'_> {
        Reading { keys, found: vec![Reply::default(); keys.len()] }
    }
}

impl Job for Reading<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.keys[item].1
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        // A range, so that a huge value of somebody else's does not fill our memory.
        let (key, end) = (&self.keys[item].0, MAX_BYTES.to_string());
        commands.command(&[b"GETRANGE", key, b"0", end.as_bytes()]);
        commands.command(&[b"PTTL", key]);
    }

    fn replies(&self) -> usize {
        2
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let [Value::BulkString(json), Value::Int(left)] = replies else {
            return Err(unexpected("the server", "GETRANGE", replies));
        };
        self.found[item] = Reply { json: json.clone(), millis_left: *left };
        Ok(())
    }
}

/// Returns whether a server found a value of another type than a command works on.
pub(crate) fn is_wrong_type(error: &Error) -> bool {
    matches!(error, Error::Server { text, .. } if text.starts_with("WRONGTYPE"))
}

/// A name as messages show it.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A time as servers take it: in milliseconds since 1970.
pub(crate) fn millis_at(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()).to_string()
}

fn millis_left(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO).as_millis().max(1)
}
