//! The pages that are for readers: the README and docs. Tests take from them what they show.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The README and all of docs, by their paths from the root, in order.
pub fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).expect("docs");
    let docs = docs.map(|entry| format!("docs/{}", entry.expect("an entry").file_name().to_string_lossy()));
    let mut paths: Vec<String> = docs.filter(|path| path.ends_with(".md")).collect();
    paths.sort();
    paths.insert(0, "README.md".to_owned());
    paths.into_iter().map(|path| (path.clone(), page(&path))).collect()
}

/// One page.
pub fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of each fenced block of a language in a page, indentation taken off.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let Some(of) = text.strip_prefix("```") else {
            continue;
        };
        let indent = line.len() - text.len();
        let mut block = String::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("a block has no end: {block}"));
            if line.trim_start() == "```" {
                break;
            }
            block += &(line.get(indent..).unwrap_or_default().to_owned() + "\n");
        }
        if of == language {
            blocks.push(block);
        }
    }
    blocks
}

/// All blocks of a language, each with the path of its page.
pub fn all_blocks(language: &str) -> Vec<(String, String)> {
    let of_page = |(path, text): (String, String)| {
        let blocks = blocks(&text, language).into_iter();
        blocks.map(move |block| (path.clone(), block)).collect::<Vec<_>>()
    };
    pages().into_iter().flat_map(of_page).collect()
}

/// A page without its fenced blocks.
pub fn prose(page: &str) -> String {
    let mut is_block = false;
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        is_block ^= fence;
        !is_block && !fence
    };
    page.lines().filter(is_prose).map(|line| line.to_owned() + "\n").collect()
}
