//! The house: each room of `src/lib.rs` knows only those before it, and no file is longer than a reader bears.

use std::path::{Path, PathBuf};

/// Lines of a file in src, with comments and blank lines.
const MOST_LINES: usize = 400;

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every file below a folder, with its text.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![(path.clone(), std::fs::read_to_string(&path).expect("a text"))],
    });
    files.collect()
}

/// The rooms in order, as `src/lib.rs` lists them.
fn rooms() -> Vec<String> {
    let lib = std::fs::read_to_string(src().join("lib.rs")).expect("src/lib.rs");
    let list = lib.split("//! rooms: ").nth(1).expect("a list of rooms").split("//!\n").next().expect("its end");
    list.replace("//!", "").split(',').map(|room| room.trim().to_owned()).collect()
}

/// The room that a file is in; None for `lib.rs` and the tool.
fn room_of(path: &Path) -> Option<String> {
    let path = path.strip_prefix(src()).expect("a file in src");
    let first = path.components().next().expect("a name").as_os_str().to_str().expect("a name");
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (room != "lib" && room != "bin").then(|| room.to_owned())
}

/// The rooms that a text names by `crate::`, each with its line. Comments name any.
fn named(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let named = lines.flat_map(|(at, line)| {
        let rests = line.split("crate::").skip(1);
        rests.flat_map(move |rest| {
            // One name, or several in braces.
            let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or(list));
            let names = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
            let name = |name: &str| {
                let name = name.trim();
                name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().map(str::to_owned)
            };
            names.into_iter().filter_map(name).map(move |name| (at + 1, name)).collect::<Vec<_>>()
        })
    });
    named.collect()
}

#[test]
fn each_room_knows_only_those_before_it() {
    let rooms = rooms();
    let place = |room: &str| rooms.iter().position(|known| known == room);
    let mut wrong = Vec::new();
    let mut seen = vec![0; rooms.len()];
    for (path, text) in files(&src()) {
        let Some(room) = room_of(&path) else { continue };
        let here = place(&room).unwrap_or_else(|| panic!("{room} stands in the list of src/lib.rs"));
        seen[here] += 1;
        for (line, other) in named(&text) {
            match place(&other) {
                Some(there) if there <= here => {}
                Some(_) => wrong.push(format!("{}:{line}: {room} knows {other}, a later room", path.display())),
                None => wrong.push(format!("{}:{line}: {other} is no room", path.display())),
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let empty: Vec<&String> = rooms.iter().zip(&seen).filter(|(_, files)| **files == 0).map(|(room, _)| room).collect();
    assert_eq!(empty, Vec::<&String>::new(), "rooms that nobody has built");
}

#[test]
fn a_later_room_is_found_wherever_it_is_named() {
    let text = "use crate::clock::Ms;\n// crate::host\nfn f() { crate::engine::decide(); }\nuse crate::{path, policy::Tree};\n";
    let found = named(text);
    let wanted = [(1, "clock"), (3, "engine"), (4, "path"), (4, "policy")];
    assert_eq!(found, wanted.map(|(line, room)| (line, room.to_owned())));
}

#[test]
fn no_file_is_longer_than_four_hundred_lines() {
    let long = files(&src()).into_iter().map(|(path, text)| (path, text.lines().count()));
    let long: Vec<(PathBuf, usize)> = long.filter(|(_, lines)| *lines > MOST_LINES).collect();
    assert_eq!(long, Vec::<(PathBuf, usize)>::new());
}
