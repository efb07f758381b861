//! Reads what the user names.

use std::io::Read;

use crate::Stop;

/// The text of a file; `-` is the standard input.
pub fn file(name: &str) -> Result<String, Stop> {
    let mut bytes = Vec::new();
    let told = if name == "-" { "<stdin>" } else { name };
    let read = match name {
        "-" => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        _ => std::fs::File::open(name).and_then(|mut file| file.read_to_end(&mut bytes)).map(|_| ()),
    };
    read.map_err(|error| Stop(format!("{told}: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Stop(format!("{told}: is no text in UTF-8")))
}
