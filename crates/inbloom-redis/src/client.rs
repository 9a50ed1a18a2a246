//! A server or a cluster: its map of slots, its connections, and calls that go on through failures.
//!
//! A call is a [`Job`]: items, each with the slot it belongs to and the commands it takes. `run` sends
//! each item to the node that has its slot, all items of a node in pipelines, and all nodes work at
//! once. What fails is tried again until the deadline, see `retry.rs`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::Value;

use crate::address::Server;
use crate::command::Commands;
use crate::error::{Error, Result};
use crate::lane::{Access, Lane, Round};
use crate::options::{Options, Reads};
use crate::retry::{Patience, Setback, judge, random};
use crate::topology::{Node, Topology};
use crate::wire::{Trouble, Wire, error_in};

/// Work that consists of items, each for one slot.
pub(crate) trait Job {
    /// Returns the slot of an item.
    fn slot(&self, item: usize) -> u16;

    /// Adds the commands of an item.
    fn write(&self, item: usize, commands: &mut Commands);

    /// Returns how many replies an item gets.
    fn replies(&self) -> usize {
        1
    }

    /// Returns how many items a pipeline has at most.
    fn batch(&self) -> usize {
        500
    }

    /// Adds a command, with one reply, that changes nothing about an item and still counts as a change to
    /// be copied. Returns false if the item's own commands always do.
    fn mark(&self, _item: usize, _commands: &mut Commands) -> bool {
        false
    }

    /// Takes the replies of an item, none of which is an error. It may come again, if the item has to
    /// be repeated to be sure of its copies.
    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()>;

    /// Notes that an item was sent, and perhaps run, without a reply.
    fn unanswered(&mut self, _item: usize) {}
}

/// What became of a job: the items that failed, in no order, and the first reason.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub failed: Vec<usize>,
    pub error: Option<Error>,
}

impl Outcome {
    pub fn into_result(self) -> Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

/// A server or a cluster. Clones share its connections, and any number of threads may use it.
///
/// ```no_run
/// use inbloom_redis::{Client, Options};
///
/// let client = Client::connect(&"redis://localhost:7000".parse()?, Options::default())?;
/// println!("{} masters", client.masters());
/// # Ok::<(), inbloom_redis::Error>(())
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    server: Server,
    options: Options,
    topology: RwLock<Arc<Topology>>,
    /// Connections that nobody uses at the moment, by node, and whether they only read.
    idle: Mutex<HashMap<(Node, bool), Vec<Wire>>>,
}

/// The most idle connections to a node that are kept.
const MAX_IDLE: usize = 64;

/// Redirections in a row after which the next is not followed at once: the nodes disagree.
const MAX_REDIRECTIONS: usize = 5;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.0.server)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a server. If it is one of a cluster, it says who the others are.
    ///
    /// # Errors
    ///
    /// Fails at once if the server cannot be reached, refuses the password, or does not have the
    /// database.
    pub fn connect(server: &Server, options: Options) -> Result<Client> {
        options.check()?;
        let node = Node { host: server.host.clone(), port: server.port };
        let mut wire = Wire::open(&node, false, server, &options).map_err(at_once)?;
        let topology = map_of_slots(&mut wire).map_err(at_once)?;
        let client = Client(Arc::new(Inner {
            server: server.clone(),
            options,
            topology: RwLock::new(Arc::new(topology)),
            idle: Mutex::default(),
        }));
        client.check_in(wire);
        Ok(client)
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Returns the server that the client was made for.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// Returns how many masters there are: 1, unless it is a cluster.
    #[must_use]
    pub fn masters(&self) -> usize {
        self.topology().masters().len()
    }

    /// Returns whether it is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(*self.topology(), Topology::Cluster { .. })
    }

    /// Asks every master for a sign of life.
    ///
    /// # Errors
    ///
    /// Fails if one does not give it before the deadline.
    pub fn ping(&self) -> Result<()> {
        self.ask_masters(&[b"PING"]).map(drop)
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.0.topology.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs items of a job until each has its reply, or the deadline passes.
    pub(crate) fn run(&self, job: &mut dyn Job, items: usize, access: Access) -> Outcome {
        let mut outcome = Outcome::default();
        let mut patience = Patience::new(self.0.options.deadline);
        let mut pending: Vec<usize> = (0..items).collect();
        let mut asks: HashMap<usize, Node> = HashMap::new();
        let (mut reads, mut redirections) = (self.0.options.reads, 0);
        while !pending.is_empty() {
            let topology = self.topology();
            let (mut lanes, unserved) = plan(&topology, job, &pending, &mut asks, access, reads);
            let mut round = Round::new(access, &self.0.options, patience);
            if !unserved.is_empty() {
                round.setback(Setback::Later("no master serves a slot".to_owned()), &unserved);
            }
            for lane in &mut lanes {
                match self.check_out(&lane.node, lane.reads_only) {
                    Ok(wire) => lane.wire = Some(wire),
                    Err(trouble) => round.not_sent(lane, trouble),
                }
            }
            round.exchange(&mut lanes, job);
            lanes.into_iter().filter_map(|lane| lane.wire).for_each(|wire| self.check_in(wire));

            if let Some(error) = round.error.take() {
                outcome.error.get_or_insert(error);
            }
            outcome.failed.append(&mut round.failed);
            if !round.moved.is_empty() {
                self.enter(&round.moved);
            }
            patience = round.patience;
            pending = std::mem::take(&mut round.pending);
            asks = std::mem::take(&mut round.asks);
            pending.sort_unstable(); // Items of a key that came twice stay in their order.
            if pending.is_empty() {
                break;
            }
            if patience.is_over() {
                let last = round.last.take().unwrap_or_else(|| "it was redirected".to_owned());
                let waited = patience.waited();
                outcome.error.get_or_insert(Error::Unavailable { waited, last });
                outcome.failed.append(&mut pending);
                break;
            }
            redirections = if round.last.is_some() { 0 } else { redirections + 1 };
            if round.last.is_some() || redirections > MAX_REDIRECTIONS {
                patience.pause();
                // What a replica does not answer, the master may.
                reads = Reads::Masters;
            }
            if round.last.is_some() || !round.moved.is_empty() {
                self.refresh(&round.broken);
            }
        }
        outcome
    }

    /// Runs one command for a slot.
    pub(crate) fn call(&self, slot: u16, access: Access, command: &[&[u8]]) -> Result<Value> {
        let mut job = Call { slot, command, reply: Value::Nil };
        self.run(&mut job, 1, access).into_result()?;
        Ok(job.reply)
    }

    /// Runs commands on one connection to the node of a slot, each depending on the replies before, as
    /// often as it takes. `work` must bear to be begun again.
    pub(crate) fn converse<T>(
        &self,
        slot: u16,
        mut work: impl FnMut(&mut Conversation) -> std::result::Result<T, Interrupted>,
    ) -> Result<T> {
        let mut patience = Patience::new(self.0.options.deadline);
        loop {
            let topology = self.topology();
            let result = match topology.shard(slot) {
                None => Err(Interrupted::Setback(Setback::Later("no master".to_owned()))),
                Some((node, _)) => {
                    self.check_out(node, false).map_err(Interrupted::from).and_then(|wire| {
                        let mut conversation = Conversation { wire };
                        let result = work(&mut conversation);
                        // One that was interrupted may be in the middle of a transaction.
                        if result.is_ok() {
                            self.check_in(conversation.wire);
                        }
                        result
                    })
                }
            };
            let last = match result {
                Ok(value) => return Ok(value),
                Err(Interrupted::Fatal(error)) => return Err(error),
                Err(Interrupted::Setback(Setback::Moved { slot, node })) => {
                    self.enter(&[(slot, node)]);
                    "it was redirected".to_owned()
                }
                // A conversation is about one key, which is not asked for at two nodes.
                Err(Interrupted::Setback(Setback::Ask(_))) => "the slot is moving".to_owned(),
                Err(Interrupted::Setback(Setback::Later(text) | Setback::Demoted(text)))
                | Err(Interrupted::Connection(text)) => text,
            };
            if patience.is_over() {
                return Err(Error::Unavailable { waited: patience.waited(), last });
            }
            patience.pause();
            self.refresh(&[]);
        }
    }

    /// Runs a command on every master, and returns the replies with their nodes. An error of the server
    /// is a reply.
    pub(crate) fn ask_masters(&self, command: &[&[u8]]) -> Result<Vec<(Node, Value)>> {
        self.on_masters(|wire| ask_when_ready(wire, command))
    }

    /// Does something on every master, and returns the results with their nodes. If a master fails, it is
    /// begun again on the one that takes its place.
    pub(crate) fn on_masters<T>(
        &self,
        mut work: impl FnMut(&mut Wire) -> std::result::Result<T, Trouble>,
    ) -> Result<Vec<(Node, T)>> {
        let mut patience = Patience::new(self.0.options.deadline);
        let (mut done, mut broken): (Vec<(Node, T)>, _) = (Vec::new(), Vec::new());
        loop {
            // Nobody says where masters are that were added, or promoted, since the last call.
            self.refresh(&broken);
            broken.clear();
            let mut last = None;
            for node in self.topology().masters() {
                if done.iter().any(|(known, _)| *known == node) {
                    continue;
                }
                let result = self.check_out(&node, false).and_then(|mut wire| {
                    let result = work(&mut wire)?;
                    self.check_in(wire);
                    Ok(result)
                });
                match result {
                    Ok(result) => {
                        done.push((node, result));
                        patience.reset();
                    }
                    Err(Trouble::Fatal(error)) => return Err(error),
                    Err(Trouble::Connection(text)) => {
                        last = Some(text);
                        broken.push(node);
                    }
                }
            }
            let Some(last) = last else { return Ok(done) };
            if patience.is_over() {
                return Err(Error::Unavailable { waited: patience.waited(), last });
            }
            patience.pause();
        }
    }

    /// Takes an idle connection, or makes one.
    fn check_out(&self, node: &Node, reads_only: bool) -> std::result::Result<Wire, Trouble> {
        loop {
            let idle = {
                let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
                idle.get_mut(&(node.clone(), reads_only)).and_then(Vec::pop)
            };
            let Some(mut wire) = idle else {
                return Wire::open(node, reads_only, &self.0.server, &self.0.options);
            };
            if wire.is_alive() {
                return Ok(wire);
            }
        }
    }

    /// Keeps a connection for later. Only those that have no replies to come may be kept.
    fn check_in(&self, wire: Wire) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let wires = idle.entry((wire.node.clone(), wire.reads_only)).or_default();
        if wires.len() < MAX_IDLE {
            wires.push(wire);
        }
    }

    /// Enters redirections into the map of slots.
    fn enter(&self, moved: &[(u16, Node)]) {
        let mut current = self.0.topology.write().unwrap_or_else(PoisonError::into_inner);
        let topology = Arc::make_mut(&mut current);
        moved.iter().for_each(|(slot, node)| topology.moved(*slot, node));
    }

    /// Reads the map of slots anew, from any node that has one: those that just failed come last.
    fn refresh(&self, broken: &[Node]) {
        let topology = self.topology();
        if let Topology::Single(_) = *topology {
            return;
        }
        let mut nodes = topology.nodes();
        nodes.push(Node { host: self.0.server.host.clone(), port: self.0.server.port });
        nodes.sort();
        nodes.dedup();
        let first = random() as usize % nodes.len();
        nodes.rotate_left(first);
        nodes.sort_by_key(|node| broken.contains(node));
        for node in nodes {
            let Ok(mut wire) = self.check_out(&node, false) else { continue };
            let Ok(Topology::Cluster { shards, owners }) = map_of_slots(&mut wire) else {
                continue;
            };
            self.check_in(wire);
            if shards.is_empty() {
                continue;
            }
            let fresh = Arc::new(Topology::Cluster { shards, owners });
            *self.0.topology.write().unwrap_or_else(PoisonError::into_inner) = fresh;
            return;
        }
    }
}

/// Divides items among nodes. Returns also those whose slot nobody serves.
fn plan(
    topology: &Topology,
    job: &dyn Job,
    pending: &[usize],
    asks: &mut HashMap<usize, Node>,
    access: Access,
    reads: Reads,
) -> (Vec<Lane>, Vec<usize>) {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut indexes: HashMap<(Node, bool, bool), usize> = HashMap::new();
    // Most items of a job are in few slots: the node of one is looked up once.
    let mut of_slot: HashMap<u16, Option<usize>> = HashMap::new();
    let mut unserved = Vec::new();
    let choice = random() as usize;
    let mut lane_of = |node: &Node, asking, reads_only| {
        *indexes.entry((node.clone(), asking, reads_only)).or_insert_with(|| {
            lanes.push(Lane::new(node.clone(), asking, reads_only));
            lanes.len() - 1
        })
    };
    let mut chosen = Vec::with_capacity(pending.len());
    for item in pending {
        if let Some(node) = asks.remove(item) {
            chosen.push((*item, lane_of(&node, true, false)));
            continue;
        }
        let slot = job.slot(*item);
        let lane = of_slot.entry(slot).or_insert_with(|| {
            let (master, replicas) = topology.shard(slot)?;
            let from_replica =
                access == Access::Query && reads == Reads::Replicas && !replicas.is_empty();
            let node = if from_replica { &replicas[choice % replicas.len()] } else { master };
            Some(lane_of(node, false, from_replica))
        });
        match lane {
            Some(lane) => chosen.push((*item, *lane)),
            None => unserved.push(*item),
        }
    }
    for (item, lane) in chosen {
        lanes[lane].items.push(item);
    }
    (lanes, unserved)
}

/// Runs a command. An error of the server is a reply, but for those that it will not make for long.
pub(crate) fn ask_when_ready(
    wire: &mut Wire,
    command: &[&[u8]],
) -> std::result::Result<Value, Trouble> {
    let reply = wire.ask(command)?;
    match error_in(&reply).map(|error| judge(error, &wire.node)) {
        Some(Ok(Setback::Later(text))) => Err(Trouble::Connection(text)),
        _ => Ok(reply),
    }
}

/// Asks a node for the map of slots. A server that has none is a single one.
fn map_of_slots(wire: &mut Wire) -> std::result::Result<Topology, Trouble> {
    let reply = wire.ask(&[b"CLUSTER", b"SLOTS"])?;
    if let Some(error) = error_in(&reply) {
        return match judge(error, &wire.node) {
            Ok(Setback::Later(text)) => Err(Trouble::Connection(text)),
            _ => Ok(Topology::Single(wire.node.clone())),
        };
    }
    let topology = Topology::from_slots(&reply, &wire.node);
    topology.ok_or_else(|| Trouble::Fatal(unexpected(&wire.node, "CLUSTER SLOTS", &reply)))
}

/// What is not tried again, because nothing has worked yet.
fn at_once(trouble: Trouble) -> Error {
    match trouble {
        Trouble::Fatal(error) => error,
        Trouble::Connection(last) => Error::Unavailable { waited: Duration::ZERO, last },
    }
}

/// The error of a reply that the command cannot have.
pub(crate) fn unexpected(
    node: impl fmt::Display,
    command: &'static str,
    reply: &(impl fmt::Debug + ?Sized),
) -> Error {
    const SHOWN: usize = 200;
    let reply: String = format!("{reply:?}").chars().take(SHOWN).collect();
    Error::Reply { node: node.to_string(), command, reply }
}

/// One command, as a job.
struct Call<'a> {
    slot: u16,
    command: &'a [&'a [u8]],
    reply: Value,
}

impl Job for Call<'_> {
    fn slot(&self, _item: usize) -> u16 {
        self.slot
    }

    fn write(&self, _item: usize, commands: &mut Commands) {
        commands.command(self.command);
    }

    fn accept(&mut self, _item: usize, replies: &[Value]) -> Result<()> {
        self.reply = replies[0].clone();
        Ok(())
    }
}

/// Why a conversation did not come to its end.
#[derive(Debug)]
pub(crate) enum Interrupted {
    Connection(String),
    Setback(Setback),
    Fatal(Error),
}

impl From<Trouble> for Interrupted {
    fn from(trouble: Trouble) -> Interrupted {
        match trouble {
            Trouble::Connection(text) => Interrupted::Connection(text),
            Trouble::Fatal(error) => Interrupted::Fatal(error),
        }
    }
}

/// A connection of which one caller has all replies.
pub(crate) struct Conversation {
    wire: Wire,
}

impl Conversation {
    /// Runs a command; an error of the server ends the conversation.
    pub fn ask(&mut self, command: &[&[u8]]) -> std::result::Result<Value, Interrupted> {
        let reply = self.wire.ask(command)?;
        match error_in(&reply).map(|error| judge(error, &self.wire.node)) {
            None => Ok(reply),
            Some(Ok(setback)) => Err(Interrupted::Setback(setback)),
            Some(Err(error)) => Err(Interrupted::Fatal(error)),
        }
    }
}
