//! The tool: what can be asked about a policy without a proxy.

mod language;
mod schema;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Weir {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the JSON Schema of a policy, from which editors complete and check
    Schema {
        /// Prints tables of every word in Markdown instead
        #[arg(long)]
        tables: bool,
    },
}

fn main() {
    match Weir::parse().command {
        Command::Schema { tables: false } => print!("{}", schema::json()),
        Command::Schema { tables: true } => print!("{}", schema::tables()),
    }
}
