//! What the fuzz targets share: requests, shared data and an environment that are made up.

use std::cell::RefCell;
use std::rc::Rc;

use weir::local::{Lost, Over, Store};
use weir::request::Request;
pub use weir_sim::shared::Shared;

/// The value of every secret; no message may hold it.
pub const SECRET: &str = "hunter2";

/// The environment: one variable that is set and one that is empty.
pub fn environment(name: &str) -> Option<String> {
    match name {
        "WEIR_HASH_SECRET" => Some(SECRET.to_owned()),
        "WEIR_EMPTY" => Some(String::new()),
        _ => None,
    }
}

/// A request by its headers.
#[derive(Debug)]
pub struct Sent<'b>(pub Vec<(&'static str, &'b [u8])>);

impl Request for Sent<'_> {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_vec())
    }

    fn is_doubled(&self, name: &str) -> bool {
        self.0.iter().filter(|(known, _)| *known == name).nth(1).is_some()
    }

    /// Properties are the headers whose names start with a NUL, their parts joined by dots.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.header(&format!("\0{}", path.join(".")))
    }
}

/// Names and values that were written to them.
pub type Written = Vec<(String, Vec<u8>)>;

/// Shared data that remembers all that was ever written through [`Store::put`], which nobody has corrupted.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What is there. Through it a fuzzer writes as a torn write or another filter would.
    pub shared: Shared,
    /// What was written whole.
    pub whole: Rc<RefCell<Written>>,
}

impl Recorded {
    /// Whether what stands there was once written there, whole.
    pub fn is_whole(&self, name: &str) -> bool {
        let value = self.shared.value(name);
        value.is_some_and(|value| self.whole.borrow().iter().any(|(at, whole)| at == name && *whole == value))
    }
}

impl Store for Recorded {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        self.shared.get(name)
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        self.shared.put(name, value, over)?;
        self.whole.borrow_mut().push((name.to_owned(), value.to_vec()));
        Ok(())
    }
}

/// Reads what a fuzzer has made up, piece by piece; all is zero after its end.
#[derive(Debug)]
pub struct Pieces<'b>(pub &'b [u8]);

impl<'b> Pieces<'b> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, count: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number of which all sizes are as likely: a byte tells in how many bytes it is written.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        self.bytes(length).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// What stands before the next newline.
    pub fn line(&mut self) -> &'b [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let line = self.bytes(end);
        self.bytes(1);
        line
    }
}
