//! Draws a text anew, again and again, in the place of the one before.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};

use crate::Stop;

const CLEAR: &str = "\x1b[2J";

/// Nothing blinks, and long lines are cut.
const BEGIN: &str = "\x1b[?25l\x1b[?7l";

const WRAP: &str = "\x1b[?7h";

const END: &str = "\x1b[?7h\x1b[?25h";

/// Whether the standard output is a terminal that can do this.
pub fn is_there() -> bool {
    stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Draws a frame, waits, and so on, until a signal ends the process with exit code 0, or the terminal is gone.
pub fn show(every: Duration, mut frame: impl FnMut() -> Result<String, Stop>) -> Result<(), Stop> {
    let handler = || {
        // As long as this has the lock, nothing is drawn any more.
        let _out = stdout().lock();
        let _ = draw(END);
        std::process::exit(0);
    };
    ctrlc::set_handler(handler).map_err(|error| Stop(format!("signals cannot be awaited: {error}")))?;
    let mut before = CLEAR;
    loop {
        let drawn = frame().map(|text| draw(&[BEGIN, before, &picture(&text), WRAP].concat()));
        match drawn {
            Ok(Ok(())) => before = "",
            Ok(Err(_)) => return Ok(()),
            Err(stop) => {
                let _ = draw(END);
                return Err(stop);
            }
        }
        std::thread::sleep(every);
    }
}

/// A text as what a terminal is sent: from its upper left corner, as many lines as it has, and nothing of what was there.
fn picture(text: &str) -> String {
    let text = match AutoStream::choice(&stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    let height = terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0).max(3));
    let (mut lines, room): (Vec<&str>, _) = (text.lines().collect(), height.saturating_sub(1));
    if lines.len() > room {
        lines.truncate(room.saturating_sub(1));
        lines.push("... more than the window holds: see --rule and --lines");
    }
    let lines: String = lines.into_iter().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

/// In one piece.
fn draw(picture: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(picture.as_bytes())?;
    out.flush()
}
