//! What a filter costs that nobody reserved: against one that was reserved for all its items.

use std::error::Error;
use std::io;

use super::client::Client;
use super::process::Server;
use super::script::{self, Cost, Expected, Script, Shape, Tally};
use crate::cli::race::{median, sorted};
use crate::report;

/// The rate of both: that of RedisBloom's defaults.
const RATE: f64 = 0.01;

/// Commands in a pipeline, and items of a command.
const MANY: usize = 100;

/// Items for which requests are made before they are sent.
const STEP: u64 = 1_000_000;

/// What the issue that asked for the server allows: times the reserved filter.
const MOST_MEMORY: f64 = 2.5;
const MOST_TIME: f64 = 3.0;

/// How much is run.
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    pub(crate) items: u64,
    /// Items of one run of queries, and absent items by which the rate is measured.
    pub(crate) queries: u64,
}

struct Filter {
    title: &'static str,
    name: &'static str,
    filling: Cost,
    /// None if the server does not tell.
    memory: Option<u64>,
    many: Vec<Cost>,
    pipelined: Vec<Cost>,
    absent: Tally,
}

pub(crate) fn run(server: &Server, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let mut client = server.connect()?;
    if !client.knows("BF.EXISTS bench:x x")? {
        println!("{} does not know BF.*: growth is not measured", server.name);
        return Ok(());
    }
    let reserve = format!("BF.RESERVE bench:r {RATE} {}", sizes.items);
    let mut filters = [
        Filter::fill(server, &mut client, "grown", "bench:g", None, sizes)?,
        Filter::fill(server, &mut client, "reserved", "bench:r", Some(&reserve), sizes)?,
    ];
    let mut number = 0;
    for round in 0..sizes.rounds {
        eprintln!("growth, round {} of {}", round + 1, sizes.rounds);
        for filter in &mut filters {
            let name = filter.name.as_bytes();
            let mut many = Script::new(Shape::Array, 1);
            for begin in (number..number + sizes.queries).step_by(MANY) {
                let items = (0..MANY).map(|item| script::query(begin + item as u64, sizes.items));
                many.push_many(&[b"BF.MEXISTS", name], items);
            }
            let mut pipelined = Script::new(Shape::Single, MANY);
            for number in number..number + sizes.queries {
                let (key, expected) = script::query(number, sizes.items);
                pipelined.push(&[b"BF.EXISTS", name, &key], expected);
            }
            filter.many.push(measure(server, &mut client, many)?);
            filter.pipelined.push(measure(server, &mut client, pipelined)?);
        }
        number += sizes.queries;
    }
    for filter in &mut filters {
        let mut script = Script::new(Shape::Array, 1);
        for begin in (number..number + sizes.queries).step_by(MANY) {
            let items = (begin..).take(MANY).map(script::absent_key);
            let items: Vec<_> = items.map(|key| (key, Expected::Usually(false))).collect();
            script.push_many(&[b"BF.MEXISTS", filter.name.as_bytes()], items.into_iter());
        }
        filter.absent = script.play(&mut client)?;
        client.ask(&format!("DEL {}", filter.name))?;
    }
    print(&filters, sizes);
    // Printed before it is judged: a rate that is too high is worth seeing.
    for filter in &filters {
        filter.absent.check(RATE)?;
    }
    Ok(())
}

/// Plays one script and checks its false positives.
fn measure(server: &Server, client: &mut Client, script: Script) -> io::Result<Cost> {
    let cost = script::measure(server.process, std::slice::from_mut(client), &[script])?;
    cost.tally.check(RATE)?;
    Ok(cost)
}

impl Filter {
    fn fill(
        server: &Server,
        client: &mut Client,
        title: &'static str,
        name: &'static str,
        reserve: Option<&str>,
        sizes: &Sizes,
    ) -> io::Result<Filter> {
        client.ask(&format!("DEL {name}"))?;
        if let Some(line) = reserve {
            client.ask(line)?;
        }
        let mut filling: Option<Cost> = None;
        for begin in (0..sizes.items).step_by(STEP as usize) {
            let end = sizes.items.min(begin + STEP);
            let step =
                measure(server, client, script::additions(name, begin..end, MANY as u64, 1))?;
            match &mut filling {
                None => filling = Some(step),
                Some(sum) => {
                    sum.processor += step.processor;
                    sum.wall += step.wall;
                    sum.tally += step.tally;
                }
            }
        }
        let filling = filling.ok_or_else(|| io::Error::other("a filter without items"))?;
        let memory = client.ask_number(&format!("MEMORY USAGE {name}"));
        if let Err(error) = &memory {
            println!("the memory of a filter is not told: {error}");
        }
        Ok(Filter {
            title,
            name,
            filling,
            memory: memory.ok(),
            many: Vec::new(),
            pipelined: Vec::new(),
            absent: Tally::default(),
        })
    }

    fn rate(&self) -> f64 {
        self.absent.false_positives as f64 / self.absent.chances as f64
    }
}

fn middle(costs: &[Cost]) -> f64 {
    median(&sorted(costs.iter().map(Cost::ns))).expect("there was a round")
}

fn print(filters: &[Filter; 2], sizes: &Sizes) {
    println!(
        "\n{} items into a default filter and into one reserved at {}%: ns of server CPU per item",
        report::count(sizes.items),
        RATE * 100.0
    );
    println!(
        "{:<16}{:>10}{:>11}{:>16}{:>19}{:>25}{:>10}",
        "",
        "MB",
        "bits/item",
        "BF.MADD of 100",
        "BF.MEXISTS of 100",
        "BF.EXISTS pipelined 100",
        "rate"
    );
    for filter in filters {
        let memory = filter.memory.map_or(f64::NAN, |bytes| bytes as f64);
        println!(
            "{:<16}{:>10.1}{:>11.2}{:>16.1}{:>19.1}{:>25.1}{:>9.4}%",
            filter.title,
            memory / 1e6,
            memory * 8.0 / sizes.items as f64,
            filter.filling.ns(),
            middle(&filter.many),
            middle(&filter.pipelined),
            filter.rate() * 100.0
        );
    }
    let [grown, reserved] = filters;
    println!("ratios, grown against reserved; of times, the medians of rounds");
    if let (Some(left), Some(right)) = (grown.memory, reserved.memory) {
        print_ratio("memory", left as f64 / right as f64, MOST_MEMORY);
    }
    print_ratio("BF.MEXISTS of 100", middle(&grown.many) / middle(&reserved.many), MOST_TIME);
    print_ratio(
        "BF.EXISTS pipelined 100",
        middle(&grown.pipelined) / middle(&reserved.pipelined),
        MOST_TIME,
    );
    for filter in filters {
        print_ratio(&format!("rate of the {} / promised", filter.title), filter.rate() / RATE, 1.0);
    }
}

fn print_ratio(name: &str, ratio: f64, most: f64) {
    println!("{name:<36}{ratio:>8.2}{:>16}", super::at_most(ratio, most));
}
