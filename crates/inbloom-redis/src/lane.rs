//! One round of a job: pipelines to every node at once, and what came of them.
//!
//! ```text
//! node a   send 1  send 2           read 1  send 3  read 2  read 3
//! node b           send 1  send 2                   read 1  read 2
//! ```
//!
//! Two pipelines of a node are under way at a time: while the server works on one, the replies of
//! the other are read. A pipeline is sent with one write, so that a server reads all of it while
//! nobody reads its replies yet: servers keep replies in memory, and pipelines are small.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use redis::Value;

use crate::client::{Job, unexpected};
use crate::command::Commands;
use crate::error::Error;
use crate::options::{Durability, Options};
use crate::retry::{Patience, Setback, judge};
use crate::topology::Node;
use crate::wire::{Trouble, Wire, error_in};

/// What commands do, and so who runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A query, which replicas may answer if the options allow it.
    Query,
    /// A query of what masters have.
    Read,
    /// A change, which goes to masters and may have to be copied.
    Write,
}

/// Pipelines of a node that are under way at a time.
const DEPTH: usize = 2;

/// Bytes after which a pipeline is sent, though it could have more items.
const FULL: usize = 256 << 10;

/// Commands that were sent with one write.
#[derive(Clone)]
struct Pipeline {
    /// Which items of the lane it has.
    items: std::ops::Range<usize>,
    /// Replies between those of the items and that of the command that waits for copies.
    marks: usize,
}

/// The items that one node gets in a round.
pub(crate) struct Lane {
    pub node: Node,
    /// Whether each item is announced by ASKING.
    pub asking: bool,
    /// Whether the node is a replica.
    pub reads_only: bool,
    pub items: Vec<usize>,
    /// The connection, until it breaks.
    pub wire: Option<Wire>,
    /// Items that were sent.
    sent: usize,
    /// The pipelines that are under way.
    under_way: VecDeque<Pipeline>,
    /// Items whose copies were not confirmed in time.
    unconfirmed: Vec<usize>,
}

impl Lane {
    pub fn new(node: Node, asking: bool, reads_only: bool) -> Lane {
        Lane {
            node,
            asking,
            reads_only,
            items: Vec::new(),
            wire: None,
            sent: 0,
            under_way: VecDeque::new(),
            unconfirmed: Vec::new(),
        }
    }
}

/// What came of a round.
pub(crate) struct Round {
    access: Access,
    durability: Durability,
    /// How long a server waits for copies before it says how many there are.
    copy_wait: Duration,
    /// The time that the call has left. It begins anew with every pipeline that comes through.
    pub patience: Patience,
    /// Items to be tried again.
    pub pending: Vec<usize>,
    /// Those of them that have to be announced to another node.
    pub asks: HashMap<usize, Node>,
    pub failed: Vec<usize>,
    /// The first error that no retry helps against.
    pub error: Option<Error>,
    /// What went wrong last, other than a redirection.
    pub last: Option<String>,
    pub moved: Vec<(u16, Node)>,
    /// Nodes whose connection broke.
    pub broken: Vec<Node>,
}

impl Round {
    pub fn new(access: Access, options: &Options, patience: Patience) -> Round {
        Round {
            access,
            durability: options.durability,
            // Less than a connection waits for a reply.
            copy_wait: options.response_timeout / 2,
            patience,
            pending: Vec::new(),
            asks: HashMap::new(),
            failed: Vec::new(),
            error: None,
            last: None,
            moved: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Sends the items of all lanes and reads their replies.
    pub fn exchange(&mut self, lanes: &mut [Lane], job: &mut dyn Job) {
        let mut busy = true;
        while busy {
            busy = false;
            for lane in &mut *lanes {
                while lane.under_way.len() < DEPTH && self.send(lane, job) {
                    busy = true;
                }
            }
            for lane in &mut *lanes {
                busy |= self.receive(lane, job);
            }
        }
        for lane in lanes {
            self.confirm(lane, job);
        }
    }

    /// Enters that items were not run, and why.
    pub fn setback(&mut self, setback: Setback, items: &[usize]) {
        match setback {
            Setback::Moved { slot, node } => self.moved.push((slot, node)),
            Setback::Ask(node) => {
                self.asks.extend(items.iter().map(|item| (*item, node.clone())));
            }
            Setback::Later(text) | Setback::Demoted(text) => self.last = Some(text),
        }
        self.pending.extend_from_slice(items);
    }

    /// Enters that there is no connection for the items of a lane.
    pub fn not_sent(&mut self, lane: &mut Lane, trouble: Trouble) {
        let items = std::mem::take(&mut lane.items);
        match trouble {
            Trouble::Fatal(error) => self.fail(error, &items),
            Trouble::Connection(text) => {
                self.last = Some(text);
                self.broken.push(lane.node.clone());
                self.pending.extend(items);
            }
        }
    }

    fn fail(&mut self, error: Error, items: &[usize]) {
        self.error.get_or_insert(error);
        self.failed.extend_from_slice(items);
    }

    /// Sends the next pipeline of a lane, if there is one.
    fn send(&mut self, lane: &mut Lane, job: &mut dyn Job) -> bool {
        let Some(wire) = &mut lane.wire else { return false };
        let first = lane.sent;
        let last = lane.items.len().min(first + job.batch());
        let mut commands = Commands::default();
        while lane.sent < last && commands.bytes().len() < FULL {
            if lane.asking {
                commands.command(&[b"ASKING"]);
            }
            job.write(lane.items[lane.sent], &mut commands);
            lane.sent += 1;
        }
        if first == lane.sent {
            return false;
        }
        let mut marks = 0;
        if self.waits() {
            let mut mark = Commands::default();
            if job.mark(lane.items[lane.sent - 1], &mut mark) {
                if lane.asking {
                    commands.command(&[b"ASKING"]);
                }
                commands.append(&mark);
                marks = 1 + usize::from(lane.asking);
            }
            self.write_wait(&mut commands);
        }
        lane.under_way.push_back(Pipeline { items: first..lane.sent, marks });
        if let Err(trouble) = wire.send(&commands) {
            self.break_off(lane, job, trouble, 0);
        }
        true
    }

    /// Reads the replies of the oldest pipeline of a lane, if there is one.
    fn receive(&mut self, lane: &mut Lane, job: &mut dyn Job) -> bool {
        let (Some(wire), Some(pipeline)) = (&mut lane.wire, lane.under_way.front().cloned()) else {
            return false;
        };
        let replies_each = job.replies() + usize::from(lane.asking);
        let mut replies = Vec::with_capacity(replies_each);
        let (mut accepted, mut progress) = (Vec::new(), false);
        for (done, item) in lane.items[pipeline.items.clone()].iter().copied().enumerate() {
            replies.clear();
            for _ in 0..replies_each {
                match wire.receive() {
                    Ok(reply) => replies.push(reply),
                    Err(trouble) => {
                        lane.unconfirmed.append(&mut accepted);
                        self.break_off(lane, job, trouble, done);
                        return true;
                    }
                }
            }
            match replies.iter().find_map(error_in).map(|error| judge(error, &wire.node)) {
                Some(Ok(setback)) => self.setback(setback, &[item]),
                Some(Err(error)) => self.fail(error, &[item]),
                None => match job.accept(item, &replies[usize::from(lane.asking)..]) {
                    Ok(()) if self.waits() => accepted.push(item),
                    Ok(()) => progress = true,
                    Err(error) => self.fail(error, &[item]),
                },
            }
        }
        if self.waits() {
            match self.read_wait(wire, pipeline.marks) {
                Ok(true) => progress = !accepted.is_empty(),
                Ok(false) => lane.unconfirmed.append(&mut accepted),
                Err(Some(trouble)) => {
                    lane.unconfirmed.append(&mut accepted);
                    self.break_off(lane, job, trouble, pipeline.items.len());
                    return true;
                }
                Err(None) => self.pending.append(&mut accepted),
            }
        }
        lane.under_way.pop_front();
        if progress {
            self.patience.reset();
        }
        true
    }

    /// Waits for copies of what was not confirmed in time.
    fn confirm(&mut self, lane: &mut Lane, job: &mut dyn Job) {
        while !lane.unconfirmed.is_empty() {
            let Some(wire) = &mut lane.wire else { return };
            let mut wait = Commands::default();
            self.write_wait(&mut wait);
            let sent = wire.send(&wait).map_err(Some);
            match sent.and_then(|()| self.read_wait(wire, 0)) {
                Ok(true) => {
                    lane.unconfirmed.clear();
                    self.patience.reset();
                }
                Ok(false) if self.patience.is_over() => {
                    let items = std::mem::take(&mut lane.unconfirmed);
                    self.failed.extend(items);
                }
                Ok(false) => {}
                Err(Some(trouble)) => self.break_off(lane, job, trouble, 0),
                Err(None) => self.pending.append(&mut lane.unconfirmed),
            }
        }
    }

    /// Gives a connection up, of whose oldest pipeline so many items have their replies. What was sent
    /// is perhaps done.
    fn break_off(&mut self, lane: &mut Lane, job: &mut dyn Job, trouble: Trouble, done: usize) {
        lane.wire = None;
        let answered =
            lane.under_way.front().map_or(lane.sent, |pipeline| pipeline.items.start + done);
        for item in &lane.items[answered..lane.sent] {
            job.unanswered(*item);
        }
        let mut items = lane.items[answered..].to_vec();
        items.append(&mut lane.unconfirmed);
        lane.under_way.clear();
        match trouble {
            Trouble::Connection(text) => {
                self.last = Some(text);
                self.broken.push(lane.node.clone());
                self.pending.append(&mut items);
            }
            Trouble::Fatal(error) => self.fail(error, &items),
        }
    }

    /// Returns whether changes have to be confirmed by others than their master.
    fn waits(&self) -> bool {
        self.access == Access::Write && self.durability != Durability::Master
    }

    /// Adds the command that waits for copies of all changes of the connection so far.
    fn write_wait(&self, commands: &mut Commands) {
        let limit = self.patience.left().min(self.copy_wait);
        let millis = limit.as_millis().max(1).to_string();
        match self.durability {
            Durability::Master => {}
            Durability::Replicas(copies) => {
                commands.command(&[b"WAIT", copies.to_string().as_bytes(), millis.as_bytes()]);
            }
            Durability::Disk(copies) => {
                let copies = copies.to_string();
                commands.command(&[b"WAITAOF", b"1", copies.as_bytes(), millis.as_bytes()]);
            }
        }
    }

    /// Reads the reply to the command that waits, and marks before it: whether there are as many copies
    /// as were asked for. An error without trouble means that the changes must be repeated.
    fn read_wait(&mut self, wire: &mut Wire, marks: usize) -> Result<bool, Option<Trouble>> {
        let mut replies = Vec::with_capacity(marks + 1);
        for _ in 0..=marks {
            replies.push(wire.receive().map_err(Some)?);
        }
        let (node, reply) = (&wire.node, &replies[marks]);
        if let Some(error) = replies.iter().find_map(error_in) {
            // A master that was demoted meanwhile has no replicas to wait for.
            let is_demoted = error.details().is_some_and(|text| text.contains("replica"));
            return match judge(error, node) {
                Ok(setback) => {
                    self.setback(setback, &[]);
                    self.last.get_or_insert_with(|| format!("{node}: it was redirected"));
                    Err(None)
                }
                Err(Error::Server { text, .. }) if is_demoted => {
                    self.last = Some(text);
                    Err(None)
                }
                Err(error) => Err(Some(Trouble::Fatal(error))),
            };
        }
        let copies = |count: &i64| u32::try_from(*count).unwrap_or(0);
        let (wanted, got, on_disk) = match (self.durability, reply) {
            (Durability::Replicas(wanted), Value::Int(got)) => (wanted, copies(got), true),
            (Durability::Disk(wanted), Value::Array(counts)) => match counts.as_slice() {
                [Value::Int(local), Value::Int(got)] => (wanted, copies(got), *local >= 1),
                _ => return Err(Some(Trouble::Fatal(unexpected(node, "WAITAOF", reply)))),
            },
            _ => return Err(Some(Trouble::Fatal(unexpected(node, "WAIT", reply)))),
        };
        if got >= wanted && on_disk {
            return Ok(true);
        }
        if self.patience.is_over() {
            let waited = self.patience.waited();
            self.error.get_or_insert(Error::NotReplicated { wanted, got, waited });
        }
        Ok(false)
    }
}
