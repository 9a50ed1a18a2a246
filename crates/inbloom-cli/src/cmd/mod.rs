//! The subcommands, one file each: its options as `Args`, its work as `run`.

mod add;
mod build;
mod calculator;
mod check;
mod completions;
mod convert;
mod dedup;
mod delete;
mod r#gen;
mod info;
mod man;
mod measure;
mod merge;
mod ping;
mod plan;
mod pull;
mod push;
mod remove;
mod serve;
mod sort_ints;
mod top;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Calculator(calculator::Args),
    Build(build::Args),
    Add(add::Args),
    Remove(remove::Args),
    Check(check::Args),
    Dedup(dedup::Args),
    Delete(delete::Args),
    Push(push::Args),
    Pull(pull::Args),
    Info(info::Args),
    Merge(merge::Args),
    Convert(convert::Args),
    Measure(measure::Args),
    SortInts(sort_ints::Args),
    Gen(r#gen::Args),
    Serve(serve::Args),
    Ping(ping::Args),
    Top(top::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Command::Plan(args) => plan::run(&args),
            Command::Calculator(args) => calculator::run(&args),
            Command::Build(args) => build::run(&args),
            Command::Add(args) => add::run(&args),
            Command::Remove(args) => remove::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Dedup(args) => dedup::run(&args),
            Command::Delete(args) => delete::run(&args),
            Command::Push(args) => push::run(&args),
            Command::Pull(args) => pull::run(&args),
            Command::Info(args) => info::run(&args),
            Command::Merge(args) => merge::run(&args),
            Command::Convert(args) => convert::run(&args),
            Command::Measure(args) => measure::run(&args),
            Command::SortInts(args) => sort_ints::run(&args),
            Command::Gen(args) => r#gen::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Ping(args) => ping::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}
