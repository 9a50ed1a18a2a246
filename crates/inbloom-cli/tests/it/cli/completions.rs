//! `inbloom completions`.

use std::io;

use crate::cli::folder::{Folder, exit_code};
use crate::cli::man::subcommands;

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

#[test]
fn every_subcommand_is_completed_in_every_shell() {
    let folder = Folder::new();
    for shell in SHELLS {
        let script = folder.run(&format!("completions {shell}")).expect(0).text();
        for name in subcommands() {
            assert!(script.contains(&name), "no {name} for {shell}");
        }
        for option in ["invert-match", "bits-per-key"] {
            assert!(script.contains(option), "no {option} for {shell}");
        }
    }
}

#[test]
fn each_shell_that_is_here_reads_its_script_without_complaint() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        folder.write("script", folder.run(&format!("completions {shell}")).expect(0).stdout);
        let mut check = std::process::Command::new(shell);
        match check.arg("-n").arg(folder.path("script")).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{shell}: {said}");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{shell}: {error}"),
        }
    }
}

#[test]
fn another_shell_is_refused_with_those_there_are() {
    let folder = Folder::new();
    folder.run("completions csh").expect_error(&["'csh'", "bash", "zsh", "fish"]);
    folder.run("completions").expect_error(&["SHELL"]);
    let help = folder.run("completions --help").expect(0).text();
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let folder = Folder::new();
    for arguments in ["completions bash", "man", "man plan"] {
        let mut child = folder.command(arguments).spawn().expect("the binary starts");
        drop(child.stdout.take());
        let stderr = child.stderr.take().expect("it is piped");
        assert_eq!(exit_code(child), 0, "{arguments}");
        assert_eq!(io::read_to_string(stderr).expect("it is text"), "", "{arguments}");
    }
}
