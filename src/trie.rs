//! Many patterns of paths, searched together: what a path costs depends on its segments, hardly on how many patterns
//! there are.

use crate::path::{Part, Pattern};

/// Patterns by their segments, each with a number.
#[derive(Clone, Debug)]
pub struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// What goes on with this segment, sorted by it.
    exactly: Vec<(String, usize)>,
    /// What goes on with any segment.
    any: Option<usize>,
    /// Numbers of patterns that end here.
    here: Vec<usize>,
    /// Numbers of patterns that end here with `/**`.
    below: Vec<usize>,
}

impl Default for Trie {
    fn default() -> Trie {
        Trie { nodes: vec![Node::default()] }
    }
}

impl Trie {
    /// Adds a pattern under a number.
    pub fn add(&mut self, pattern: &Pattern, number: usize) {
        let mut at = 0;
        for part in pattern.segments() {
            let new = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                return;
            };
            at = match part {
                Part::Any => *node.any.get_or_insert(new),
                Part::Exactly(segment) => {
                    match node.exactly.binary_search_by(|(other, _)| other.as_str().cmp(segment)) {
                        Ok(found) => node.exactly.get(found).map_or(new, |(_, next)| *next),
                        Err(place) => {
                            node.exactly.insert(place, (segment.clone(), new));
                            new
                        }
                    }
                }
            };
            if at == new {
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            if pattern.is_below() { &mut node.below } else { &mut node.here }.push(number);
        }
    }

    /// The numbers of the patterns that match a path in normal form, in ascending order.
    pub fn find(&self, normal: &str) -> Vec<usize> {
        let mut found = Vec::new();
        // A path in normal form starts with a slash; `*` does not and matches nothing.
        if let (Some(path), Some(root)) = (normal.strip_prefix('/'), self.nodes.first()) {
            self.descend(root, Some(path), &mut found);
        }
        found
    }

    /// Collects what matches the segments that are left; None where the path has ended.
    fn descend(&self, node: &Node, rest: Option<&str>, found: &mut Vec<usize>) {
        insert(found, &node.below);
        let Some(rest) = rest else {
            return insert(found, &node.here);
        };
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        let exact = node.exactly.binary_search_by(|(other, _)| other.as_str().cmp(segment));
        let exact = exact.ok().and_then(|at| node.exactly.get(at)).map(|(_, next)| *next);
        let any = node.any.filter(|_| !segment.is_empty());
        for next in [exact, any].into_iter().flatten().filter_map(|next| self.nodes.get(next)) {
            self.descend(next, rest, found);
        }
    }
}

/// Few patterns match one path, and the library's sort is a lot of code.
fn insert(found: &mut Vec<usize>, numbers: &[usize]) {
    for number in numbers {
        let place = found.partition_point(|other| other < number);
        found.insert(place, *number);
    }
}
