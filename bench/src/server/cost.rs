//! What commands cost a server, by its own processor time, and how many of them it answers a
//! second.
//!
//! CF.* is measured on a cuckoo filter of the same capacity, in `pipelines` only. Members of it are
//! items that were added once and not removed, so that each of them must be found.
//!
//! PING is the floor: reading, parsing and answering without doing anything. GETBIT is the plain
//! command that is nearest to a query, for servers that have strings.

use std::error::Error;
use std::io;
use std::ops::Range;

use super::client::{Client, wrong};
use super::process::Server;
use super::script::{self, Cost, Expected, Script, Shape};
use crate::cli::race::{median, sorted};
use crate::pairs::Ratio;
use crate::{race, report, workload};

/// The filter that is asked, reserved at this rate and half full.
const FILTER: &str = "bench:f";
/// Another one like it, for commands that go to both in turn.
const OTHER: &str = "bench:g";
/// Items from here on go to these two: a query finds none of them in the first.
const IN_TURN: u64 = 1 << 41;
const RATE: f64 = 0.001;

/// The cuckoo filter that CF.* is for, half as full as it may be.
const CUCKOO: &str = "bench:c";
/// The rate of a full one, with buckets of two: 2 * 2 / 255.
const CUCKOO_RATE: f64 = 4.0 / 255.0;
/// Items from here on are given to CF.ADDNX. One that seems to be there is not added, so none of them
/// is a member.
const IF_ABSENT: u64 = 1 << 42;

/// The string that GETBIT asks, about as large as the filter: 16 MiB.
const STRING: &str = "bench:s";
const STRING_BITS: u64 = 1 << 27;
/// Every 1341st bit of the string is set, 100,000 of them.
const SET_BITS: u64 = 100_000;
const SET_BITS_APART: u64 = 1341;
const _: () = assert!(SET_BITS * SET_BITS_APART < STRING_BITS);

/// Commands in a pipeline, and items in a command that takes many.
const MANY: usize = 100;
/// Commands in a pipeline of an ordinary client.
const SOME: usize = 16;

/// Runs of a load in a round, between which servers take turns. A command that waits for the last
/// one's reply costs 12 to 20 us of the same Redis, as the scheduler places it and the client: in a
/// run of half a second for each, two equal servers differed by half.
const RUNS: u64 = 5;

/// How much is run.
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    /// Items that the filter is reserved for.
    pub(crate) capacity: u64,
    /// Numbers of connections; everything is run with each.
    pub(crate) connections: Vec<usize>,
    /// Commands where each waits for the last one's reply.
    pub(crate) one_by_one: u64,
    /// Queries that do not wait.
    pub(crate) queries: u64,
    /// Items that are added in one run, few enough for the filter to stay about half full.
    pub(crate) additions: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Ping,
    GetBit,
    Exists,
    Add,
    ManyExist,
    AddMany,
    /// BF.MADD of one item.
    AddManyOfOne,
    /// BF.ADD to two filters in turn: no run of commands for one filter.
    AddInTurn,
    CuckooExists,
    CuckooCount,
    CuckooAdd,
    /// CF.ADDNX.
    CuckooAddNew,
    CuckooRemove,
    CuckooManyExist,
    /// CF.INSERT.
    CuckooAddMany,
    /// CF.INSERTNX.
    CuckooAddManyNew,
}

impl Operation {
    /// Whether it is one of CF.*.
    fn is_cuckoo(self) -> bool {
        match self {
            Operation::CuckooExists
            | Operation::CuckooCount
            | Operation::CuckooAdd
            | Operation::CuckooAddNew
            | Operation::CuckooRemove
            | Operation::CuckooManyExist
            | Operation::CuckooAddMany
            | Operation::CuckooAddManyNew => true,
            Operation::Ping
            | Operation::GetBit
            | Operation::Exists
            | Operation::Add
            | Operation::ManyExist
            | Operation::AddMany
            | Operation::AddManyOfOne
            | Operation::AddInTurn => false,
        }
    }

    /// The rate of false positives that is checked.
    fn rate(self) -> f64 {
        if self.is_cuckoo() { CUCKOO_RATE } else { RATE }
    }
}

/// What is run in one turn.
#[derive(Clone, Copy)]
struct Load {
    operation: Operation,
    /// Commands that are sent at once.
    depth: usize,
    /// What the issue that asked for the server allows, in ns per item on one connection.
    goal: Option<f64>,
}

impl Load {
    const fn new(operation: Operation, depth: usize) -> Load {
        Load { operation, depth, goal: None }
    }

    const fn at_most(self, ns: f64) -> Load {
        Load { goal: Some(ns), ..self }
    }

    fn name(&self) -> String {
        let name = match self.operation {
            Operation::Ping => "PING",
            Operation::GetBit => "GETBIT",
            Operation::Exists => "BF.EXISTS",
            Operation::Add => "BF.ADD",
            Operation::AddManyOfOne => "BF.MADD of 1",
            Operation::AddInTurn => "BF.ADD in turn",
            Operation::ManyExist => return format!("BF.MEXISTS of {MANY}"),
            Operation::AddMany => return format!("BF.MADD of {MANY}"),
            Operation::CuckooExists => "CF.EXISTS",
            Operation::CuckooCount => "CF.COUNT",
            Operation::CuckooAdd => "CF.ADD",
            Operation::CuckooAddNew => "CF.ADDNX",
            Operation::CuckooRemove => "CF.DEL",
            Operation::CuckooManyExist => return format!("CF.MEXISTS of {MANY}"),
            Operation::CuckooAddMany => return format!("CF.INSERT of {MANY}"),
            Operation::CuckooAddManyNew => return format!("CF.INSERTNX of {MANY}"),
        };
        match self.depth {
            1 => format!("{name} unpipelined"),
            depth => format!("{name} pipelined {depth}"),
        }
    }

    fn items(&self, sizes: &Sizes) -> u64 {
        match self.operation {
            Operation::ManyExist | Operation::CuckooManyExist => sizes.queries,
            Operation::AddMany | Operation::CuckooAddMany | Operation::CuckooAddManyNew => {
                sizes.additions
            }
            _ if self.depth == 1 => sizes.one_by_one,
            Operation::Add
            | Operation::AddManyOfOne
            | Operation::AddInTurn
            | Operation::CuckooAdd
            | Operation::CuckooAddNew
            | Operation::CuckooRemove => sizes.additions,
            Operation::Exists
            | Operation::Ping
            | Operation::GetBit
            | Operation::CuckooExists
            | Operation::CuckooCount => sizes.queries,
        }
    }
}

const EVERYTHING: [Load; 9] = [
    Load::new(Operation::Ping, 1),
    Load::new(Operation::Ping, MANY),
    Load::new(Operation::GetBit, 1),
    Load::new(Operation::GetBit, MANY),
    Load::new(Operation::Exists, 1),
    Load::new(Operation::Exists, MANY).at_most(300.0),
    Load::new(Operation::Add, MANY),
    Load::new(Operation::ManyExist, 1).at_most(120.0),
    Load::new(Operation::AddMany, 1).at_most(120.0),
];

/// What two builds are compared by.
const PAIRED: [Load; 11] = [
    Load::new(Operation::Ping, 1),
    Load::new(Operation::Ping, MANY),
    Load::new(Operation::Exists, 1),
    Load::new(Operation::Exists, MANY),
    Load::new(Operation::Add, 1),
    Load::new(Operation::Add, MANY),
    Load::new(Operation::AddInTurn, 1),
    Load::new(Operation::AddInTurn, MANY),
    Load::new(Operation::AddManyOfOne, 1),
    Load::new(Operation::AddManyOfOne, MANY),
    Load::new(Operation::AddMany, 1),
];

/// What is run at each depth.
const AT_DEPTHS: [Operation; 8] = [
    Operation::Ping,
    Operation::Exists,
    Operation::Add,
    Operation::CuckooExists,
    Operation::CuckooCount,
    Operation::CuckooAdd,
    Operation::CuckooAddNew,
    Operation::CuckooRemove,
];

/// Commands of many items.
const OF_MANY: [Operation; 5] = [
    Operation::ManyExist,
    Operation::AddMany,
    Operation::CuckooManyExist,
    Operation::CuckooAddMany,
    Operation::CuckooAddManyNew,
];

/// BF.* and CF.* at several depths, of the first server against the others, in turns.
pub(crate) fn pipelines(servers: &[Server], sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let single = AT_DEPTHS
        .into_iter()
        .flat_map(|operation| [1, SOME, MANY].map(|depth| Load::new(operation, depth)));
    let loads: Vec<Load> = single.chain(OF_MANY.map(|operation| Load::new(operation, 1))).collect();
    let mut contestants: Vec<Contestant<'_>> = servers
        .iter()
        .map(|server| Contestant::new(server, &loads, sizes))
        .collect::<Result<_, _>>()?;
    take_turns(&mut contestants, sizes)?;

    let runs = sizes.rounds as u64 * RUNS;
    println!(
        "\nfilters of {}, half full, keys of {} bytes: ns of server CPU per item, the median of \
         {runs} runs; ratios of the first server to the others, with 95% intervals",
        report::count(sizes.capacity),
        script::KEY_BYTES
    );
    let names: Vec<String> = servers.iter().map(|server| format!("{:>12}", server.name)).collect();
    println!("{:<26}{:>6}{}", "", "conn.", names.concat());
    let (ours, others) = contestants.split_first().ok_or("a server to measure")?;
    for turn in &ours.turns {
        let theirs: Vec<Option<&Turn>> =
            others.iter().map(|other| other.turn(&turn.load, turn.connections)).collect();
        let time = |turn: &Turn| turn.times().map_or(f64::NAN, |times| times.median);
        let mut line =
            format!("{:<26}{:>6}{:>12.1}", turn.load.name(), turn.connections, time(turn));
        for other in &theirs {
            line +=
                &other.map_or_else(|| format!("{:>12}", "-"), |it| format!("{:>12.1}", time(it)));
        }
        for other in theirs.into_iter().flatten() {
            let pairs = turn.costs.iter().zip(&other.costs);
            let ratio = Ratio::new(pairs.map(|(left, right)| left.ns() / right.ns()).collect());
            line += &format!("  {:<24}", ratio.map_or(String::new(), |ratio| ratio.text()));
        }
        println!("{}", line.trim_end());
    }
    Ok(())
}

/// All commands, of one server.
pub(crate) fn run(server: &Server, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let mut contestants = [Contestant::new(server, &EVERYTHING, sizes)?];
    take_turns(&mut contestants, sizes)?;
    print(&contestants, sizes);
    Ok(())
}

/// Single keys and their like, of a server and of Redis, in turns.
pub(crate) fn against_redis(
    server: &Server,
    redis: &Server,
    sizes: &Sizes,
) -> Result<(), Box<dyn Error>> {
    let single: Vec<Load> = EVERYTHING
        .into_iter()
        .filter(|load| {
            matches!(load.operation, Operation::Ping | Operation::GetBit | Operation::Exists)
        })
        .collect();
    let mut contestants =
        [Contestant::new(server, &single, sizes)?, Contestant::new(redis, &single, sizes)?];
    take_turns(&mut contestants, sizes)?;
    print(&contestants, sizes);

    let [ours, theirs] = &contestants;
    println!(
        "ratios, {} against {}: server CPU, of the minima and of the medians",
        server.name, redis.name
    );
    let pairs = [(Operation::Ping, Operation::Ping), (Operation::Exists, Operation::GetBit)];
    for &connections in &sizes.connections {
        for (depth, (left, right)) in
            [1, MANY].into_iter().flat_map(|depth| pairs.map(|pair| (depth, pair)))
        {
            let (left, right) = (Load::new(left, depth), Load::new(right, depth));
            let measured = (ours.times(&left, connections), theirs.times(&right, connections));
            let (Some(mine), Some(other)) = measured else { continue };
            let ratio = mine.shortest / other.shortest;
            // Judged by the minima: whatever else runs on the machine only lengthens the others.
            let goal = if depth == 1 { super::at_most(ratio, 1.0) } else { String::new() };
            println!(
                "{:<58}{ratio:>7.2}{:>7.2}{goal:>16}",
                format!("{} / {}, {connections} conn.", left.name(), right.name()),
                mine.median / other.median
            );
        }
    }
    Ok(())
}

/// Two builds in turns: the ratio of what a round took the first to what it took the second.
pub(crate) fn paired(
    server: &Server,
    before: &Server,
    sizes: &Sizes,
) -> Result<(), Box<dyn Error>> {
    let mut contestants =
        [Contestant::new(server, &PAIRED, sizes)?, Contestant::new(before, &PAIRED, sizes)?];
    take_turns(&mut contestants, sizes)?;
    let [after, before] = &contestants;
    println!(
        "\n{:<26}{:>6}{:>9}{:>9}{:>6}  ratio, 95% interval",
        "server CPU per item", "conn.", "ns", "to", "pairs"
    );
    for (after, before) in after.turns.iter().zip(&before.turns) {
        let (left, right) = (after.by_round(), before.by_round());
        let ratio = Ratio::new(left.iter().zip(&right).map(|(left, right)| left / right).collect());
        println!(
            "{:<26}{:>6}{:>9.1}{:>9.1}{:>6}  {}",
            after.load.name(),
            after.connections,
            race::median(&left),
            race::median(&right),
            left.len(),
            ratio.map_or(String::new(), |ratio| ratio.text())
        );
    }
    Ok(())
}

/// A server that takes part.
struct Contestant<'a> {
    server: &'a Server,
    clients: Vec<Client>,
    /// What it knows of what is run, with each number of connections.
    turns: Vec<Turn>,
    /// Queries that were made: none is asked twice.
    queries: u64,
    /// Items in the filter.
    added: u64,
    /// Items that went to two filters in turn.
    in_turn: u64,
    /// Items in the cuckoo filter that were added once.
    members: Range<u64>,
    /// Items that were given to CF.ADDNX.
    if_absent: u64,
}

struct Turn {
    load: Load,
    connections: usize,
    costs: Vec<Cost>,
}

impl<'a> Contestant<'a> {
    fn new(server: &'a Server, loads: &[Load], sizes: &Sizes) -> io::Result<Contestant<'a>> {
        let most = sizes.connections.iter().copied().max().unwrap_or(1);
        let mut clients = server.connect_many(most)?;
        let has_filters = clients[0].knows(&format!("BF.EXISTS {FILTER} x"))?;
        let has_cuckoo = clients[0].knows(&format!("CF.EXISTS {CUCKOO} x"))?;
        let has_strings = clients[0].knows(&format!("GETBIT {STRING} 0"))?;
        if !has_filters {
            println!("{} does not know BF.*, of which nothing is measured", server.name);
        }
        let is_known = |load: &&Load| match load.operation {
            Operation::Ping => true,
            Operation::GetBit => has_strings,
            operation if operation.is_cuckoo() => has_cuckoo,
            _ => has_filters,
        };
        let turns = sizes
            .connections
            .iter()
            .flat_map(|&connections| {
                loads.iter().filter(is_known).map(move |&load| Turn {
                    load,
                    connections,
                    costs: Vec::new(),
                })
            })
            .collect();
        let (queries, added, in_turn, if_absent) = (0, 0, 0, 0);
        Ok(Contestant { server, clients, turns, queries, added, in_turn, members: 0..0, if_absent })
    }

    /// Makes filter and string as they are at the beginning of every round.
    fn prepare(&mut self, sizes: &Sizes) -> io::Result<()> {
        let uses =
            |operation| self.turns.iter().any(|turn: &Turn| turn.load.operation == operation);
        let (asks_filter, asks_string) = (uses(Operation::Exists), uses(Operation::GetBit));
        let adds_in_turn = uses(Operation::AddInTurn);
        let asks_cuckoo = uses(Operation::CuckooExists);
        let client = &mut self.clients[0];
        if asks_filter {
            client.ask(&format!("DEL {FILTER} {OTHER}"))?;
            client.ask(&format!("BF.RESERVE {FILTER} {RATE} {}", sizes.capacity))?;
            self.added = sizes.capacity / 2;
            script::fill(client, FILTER, 0..self.added, RATE)?;
        }
        if adds_in_turn {
            client.ask(&format!("BF.RESERVE {OTHER} {RATE} {}", sizes.capacity))?;
        }
        if asks_cuckoo {
            client.ask(&format!("DEL {CUCKOO}"))?;
            client.ask(&format!("CF.RESERVE {CUCKOO} {}", sizes.capacity))?;
            self.members = 0..sizes.capacity / 2;
            script::fill_cuckoo(client, CUCKOO, self.members.clone())?;
        }
        if asks_string {
            client.ask(&format!("DEL {STRING}"))?;
            let mut script = Script::new(Shape::Single, MANY);
            for bit in 0..SET_BITS {
                let offset = (bit * SET_BITS_APART).to_string();
                let words: [&[u8]; 4] = [b"SETBIT", STRING.as_bytes(), offset.as_bytes(), b"1"];
                script.push(&words, Expected::Surely(false));
            }
            script.play(client)?;
        }
        Ok(())
    }

    fn run(&mut self, turn: usize, sizes: &Sizes) -> io::Result<()> {
        let Turn { load, connections, .. } = self.turns[turn];
        let items = load.items(sizes) / RUNS / connections as u64;
        let scripts: Vec<Script> = (0..connections).map(|_| self.script(load, items)).collect();
        let clients = &mut self.clients[..connections];
        let named = |error| wrong(format!("{}, {}: {error}", self.server.name, load.name()));
        let cost = script::measure(self.server.process, clients, &scripts).map_err(named)?;
        cost.tally.check(load.operation.rate()).map_err(named)?;
        self.turns[turn].costs.push(cost);
        Ok(())
    }

    /// So many items of a load, for one connection.
    fn script(&mut self, load: Load, items: u64) -> Script {
        if load.operation.is_cuckoo() {
            return self.cuckoo_script(load, items);
        }
        let filter = FILTER.as_bytes();
        let numbers = self.queries..self.queries + items;
        let new = self.added..self.added + items;
        let mut script = Script::new(Shape::Single, load.depth);
        match load.operation {
            Operation::Ping => {
                for _ in numbers {
                    script.push(&[b"PING"], Expected::Pong);
                }
                return script;
            }
            Operation::GetBit => {
                for number in numbers.clone() {
                    // Half of the bits that are asked are set, and half are next to one.
                    let is_set = number.is_multiple_of(2);
                    let bit = workload::mix(number) % SET_BITS * SET_BITS_APART;
                    let offset = (bit + u64::from(!is_set)).to_string();
                    let words: [&[u8]; 3] = [b"GETBIT", STRING.as_bytes(), offset.as_bytes()];
                    script.push(&words, Expected::Surely(is_set));
                }
            }
            Operation::Exists => {
                for number in numbers.clone() {
                    let (key, expected) = script::query(number, self.added);
                    script.push(&[b"BF.EXISTS", filter, &key], expected);
                }
            }
            Operation::ManyExist => {
                script = Script::new(Shape::Array, load.depth);
                for begin in numbers.clone().step_by(MANY) {
                    let queries =
                        (0..MANY).map(|item| script::query(begin + item as u64, self.added));
                    script.push_many(&[b"BF.MEXISTS", filter], queries);
                }
            }
            Operation::Add => {
                for identity in new {
                    let words: [&[u8]; 3] = [b"BF.ADD", filter, &script::key(identity)];
                    script.push(&words, Expected::Usually(true));
                }
                self.added += items;
                return script;
            }
            Operation::AddInTurn => {
                for number in self.in_turn..self.in_turn + items {
                    let filter = if number.is_multiple_of(2) { FILTER } else { OTHER };
                    let key = script::key(IN_TURN + number);
                    script.push(&[b"BF.ADD", filter.as_bytes(), &key], Expected::Usually(true));
                }
                self.in_turn += items;
                return script;
            }
            Operation::AddManyOfOne => {
                self.added += items;
                return script::additions(FILTER, new, 1, load.depth);
            }
            Operation::AddMany => {
                self.added += items;
                return script::additions(FILTER, new, MANY as u64, load.depth);
            }
            Operation::CuckooExists
            | Operation::CuckooCount
            | Operation::CuckooAdd
            | Operation::CuckooAddNew
            | Operation::CuckooRemove
            | Operation::CuckooManyExist
            | Operation::CuckooAddMany
            | Operation::CuckooAddManyNew => unreachable!("left to `cuckoo_script`"),
        }
        self.queries = numbers.end;
        script
    }

    /// The same for CF.*.
    fn cuckoo_script(&mut self, load: Load, items: u64) -> Script {
        let Load { operation, depth, .. } = load;
        let filter = CUCKOO.as_bytes();
        let mut script = Script::new(Shape::Single, depth);
        let mut single = |word: &[u8], identities: Range<u64>, expected| {
            for identity in identities {
                script.push(&[word, filter, &script::key(identity)], expected);
            }
        };
        let new = self.members.end..self.members.end + items;
        let if_absent = IF_ABSENT + self.if_absent..IF_ABSENT + self.if_absent + items;
        let insert = |word, identities, expected| {
            let words: [&[u8]; 3] = [word, filter, b"ITEMS"];
            script::commands_of(&words, (identities, expected), MANY as u64, depth)
        };
        match operation {
            Operation::CuckooAdd => {
                self.members.end += items;
                single(b"CF.ADD", new, Expected::Surely(true));
            }
            Operation::CuckooAddMany => {
                self.members.end += items;
                return insert(b"CF.INSERT", new, Expected::Surely(true));
            }
            Operation::CuckooAddNew => {
                self.if_absent += items;
                single(b"CF.ADDNX", if_absent, Expected::Usually(true));
            }
            Operation::CuckooAddManyNew => {
                self.if_absent += items;
                return insert(b"CF.INSERTNX", if_absent, Expected::Usually(true));
            }
            Operation::CuckooRemove => {
                let gone = self.members.start..self.members.start + items;
                self.members.start += items;
                single(b"CF.DEL", gone, Expected::Surely(true));
            }
            Operation::CuckooManyExist => {
                script = Script::new(Shape::Array, depth);
                for begin in (self.queries..self.queries + items).step_by(MANY) {
                    let members = &self.members;
                    let queries = (0..MANY)
                        .map(|item| script::query_of(begin + item as u64, members.clone()));
                    script.push_many(&[b"CF.MEXISTS", filter], queries);
                }
                self.queries += items;
            }
            _ => {
                for number in self.queries..self.queries + items {
                    let (key, expected) = script::query_of(number, self.members.clone());
                    let (word, expected): (&[u8], _) = match operation {
                        Operation::CuckooCount => {
                            let of_member = expected == Expected::Surely(true);
                            (b"CF.COUNT", Expected::Count { of_member })
                        }
                        _ => (b"CF.EXISTS", expected),
                    };
                    script.push(&[word, filter, &key], expected);
                }
                self.queries += items;
            }
        }
        script
    }

    fn turn(&self, load: &Load, connections: usize) -> Option<&Turn> {
        let is_it = |turn: &&Turn| {
            (turn.load.operation, turn.load.depth) == (load.operation, load.depth)
                && turn.connections == connections
        };
        self.turns.iter().find(is_it)
    }

    fn times(&self, load: &Load, connections: usize) -> Option<Times> {
        self.turn(load, connections)?.times()
    }
}

/// Nanoseconds of a server's work per item.
struct Times {
    shortest: f64,
    median: f64,
}

impl Turn {
    fn times(&self) -> Option<Times> {
        let times = sorted(self.costs.iter().map(Cost::ns));
        Some(Times { shortest: *times.first()?, median: median(&times)? })
    }

    /// Nanoseconds per item in the runs of each round.
    fn by_round(&self) -> Vec<f64> {
        let mean = |runs: &[Cost]| runs.iter().map(Cost::ns).sum::<f64>() / runs.len() as f64;
        self.costs.chunks(RUNS as usize).map(mean).collect()
    }
}

/// All rounds: servers take turns, and every round begins with another load.
fn take_turns(contestants: &mut [Contestant<'_>], sizes: &Sizes) -> io::Result<()> {
    let turns = contestants.iter().map(|one| one.turns.len()).max().unwrap_or(0);
    for round in 0..sizes.rounds {
        eprintln!("round {} of {}", round + 1, sizes.rounds);
        for contestant in &mut *contestants {
            contestant.prepare(sizes)?;
        }
        for turn in 0..turns {
            for run in 0..RUNS {
                for place in 0..contestants.len() {
                    // Every other run begins with the last.
                    let last = contestants.len() - 1;
                    let at = if run.is_multiple_of(2) { place } else { last - place };
                    let contestant = &mut contestants[at];
                    let count = contestant.turns.len();
                    if turn < count {
                        contestant.run((round + turn) % count, sizes)?;
                    }
                }
            }
        }
    }
    for contestant in contestants {
        contestant.clients[0].ask(&format!("DEL {FILTER} {OTHER} {STRING} {CUCKOO}"))?;
    }
    Ok(())
}

fn print(contestants: &[Contestant<'_>], sizes: &Sizes) {
    let runs = sizes.rounds as u64 * RUNS;
    println!(
        "\nfilter of {} at {}%, half full, keys of {} bytes: server CPU per item, of {runs} runs",
        report::count(sizes.capacity),
        RATE * 100.0,
        script::KEY_BYTES
    );
    println!(
        "{:<16}{:<26}{:>6}{:>10}{:>10}{:>12}{:>16}  note",
        "server", "", "conn.", "min ns", "median ns", "items/s", "goal"
    );
    for contestant in contestants {
        for turn in &contestant.turns {
            let speeds = sorted(turn.costs.iter().map(Cost::items_per_second));
            let (Some(times), Some(speed)) = (turn.times(), median(&speeds)) else { continue };
            let goal = match turn.load.goal {
                Some(goal) if turn.connections == 1 => super::at_most(times.median, goal),
                _ => String::new(),
            };
            let mut tally = script::Tally::default();
            turn.costs.iter().for_each(|cost| tally += cost.tally);
            println!(
                "{:<16}{:<26}{:>6}{:>10.1}{:>10.1}{speed:>12.0}{goal:>16}  {}",
                contestant.server.name,
                turn.load.name(),
                turn.connections,
                times.shortest,
                times.median,
                tally.note(turn.load.operation.rate())
            );
        }
    }
}
