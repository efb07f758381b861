//! `weir`: checks a policy, and explains what it makes of a request, with the code that the module runs; and shows who
//! comes most to proxies that run.
//!
//! Each command reads files, or asks proxies, and gives one text and an exit code. It must not know how the core decides.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unreachable,
    clippy::todo
)]
#![warn(clippy::too_many_lines)]
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is its outside")]

#[cfg(feature = "bridge")]
mod bridge;
mod check;
mod cover;
mod document;
mod explain;
mod found;
mod given;
mod input;
mod json;
mod parse;
mod ranks;
mod render;
mod report;
mod scalar;
#[allow(clippy::arithmetic_side_effects, reason = "it reckons with constants of the language alone")]
mod schema;
mod screen;
mod told;
mod top;
mod warnings;
mod yaml;

use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use clap::{CommandFactory, Parser, Subcommand};

/// Check and explain policies of weir, the rate limiter in the proxy
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "bridge")]
    Bridge(Box<bridge::Options>),
    Check(check::Options),
    Explain(explain::Options),
    Render(render::Options),
    Top(top::Options),
    /// Print the JSON Schema of a policy, from which editors complete and check
    Schema {
        /// Print tables of every word, in Markdown, instead
        #[arg(long)]
        tables: bool,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff: weir man | man -l -
    Man,
}

/// What a command has to say.
struct Output {
    text: String,
    /// What one should know beside it, where the text is for programs alone: told on the standard error.
    warnings: Vec<String>,
    outcome: Outcome,
}

impl Output {
    fn fine(text: String) -> Output {
        Output { text, warnings: Vec::new(), outcome: Outcome::Fine }
    }
}

/// What the exit code tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// 0.
    Fine,
    /// 1: something is wrong with what was looked at.
    Found,
}

/// Why a command cannot do what is asked, in words that say what to do: exit code 2.
struct Stop(String);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        #[cfg(feature = "bridge")]
        Command::Bridge(options) => bridge::run(options),
        Command::Check(options) => check::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Render(options) => render::run(options),
        Command::Top(options) => top::run(options),
        Command::Schema { tables } => Ok(Output::fine(if *tables { schema::tables() } else { schema::json() })),
        Command::Completions { shell } => Ok(completions(*shell)),
        Command::Man => man(),
    };
    match done {
        Ok(Output { text, warnings, outcome }) => {
            // Whoever reads may have read enough.
            let _ = anstream::stdout().lock().write_all(text.as_bytes());
            let said = report::styled(report::colour(AnsiColor::Yellow), "warning:");
            for warning in warnings {
                let _ = writeln!(anstream::stderr().lock(), "{said} {}", report::visible(&warning));
            }
            ExitCode::from(u8::from(outcome == Outcome::Found))
        }
        Err(Stop(message)) => {
            let error = report::styled(report::colour(AnsiColor::Red), "error:");
            let lines: Vec<String> = message.lines().map(report::visible).collect();
            let _ = writeln!(anstream::stderr().lock(), "{error} {}", lines.join("\n"));
            ExitCode::from(2)
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Output {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "weir", &mut script);
    Output::fine(String::from_utf8_lossy(&script).into_owned())
}

/// The pages of all commands, one after the other.
fn man() -> Result<Output, Stop> {
    let mut command = Arguments::command();
    command.build();
    let mut pages = Vec::new();
    let no = |error: std::io::Error| Stop(error.to_string());
    clap_mangen::Man::new(command.clone()).render(&mut pages).map_err(no)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        clap_mangen::Man::new(subcommand.clone()).render(&mut pages).map_err(no)?;
    }
    Ok(Output::fine(String::from_utf8_lossy(&pages).into_owned()))
}
