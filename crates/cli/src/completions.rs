//! Shell completions and the manual page.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::{Cli, CompletionsArgs, ShellArg};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(args: &CompletionsArgs) -> Outcome {
    let mut command = Cli::command();
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Elvish => Shell::Elvish,
        ShellArg::Fish => Shell::Fish,
        ShellArg::Powershell => Shell::PowerShell,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Man => return manual(command),
    };
    let mut text = Vec::new();
    generate(shell, &mut command, "plimsoll", &mut text);
    String::from_utf8(text).map_err(Failure::internal)
}

fn manual(command: clap::Command) -> Outcome {
    let mut text = Vec::new();
    let pages = std::iter::once(command.clone()).chain(
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| {
            let name = format!("plimsoll-{}", sub.get_name());
            sub.clone().name(name)
        }),
    );
    for page in pages {
        clap_mangen::Man::new(page).render(&mut text).map_err(Failure::internal)?;
    }
    String::from_utf8(text).map_err(Failure::internal)
}
