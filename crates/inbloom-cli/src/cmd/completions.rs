//! `inbloom completions`: what a shell needs to complete our commands and options.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, output};

/// Print a shell's completion script
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Shell to complete commands in
    #[arg(value_enum)]
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  source <(inbloom completions bash)                         in this bash
  inbloom completions bash > ~/.local/share/bash-completion/completions/inbloom
  inbloom completions zsh > ~/.zfunc/_inbloom                a folder of your $fpath
  inbloom completions fish > ~/.config/fish/completions/inbloom.fish

Exit status:
  0  the script was printed
  2  an error";

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "inbloom", &mut script);
    output::print(&script)?;
    Ok(ExitCode::SUCCESS)
}
