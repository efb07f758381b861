//! What the fuzz targets share: requests, shared data and an environment that are made up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weir::local::{Lost, Over, Store};
use weir::request::Request;

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

/// Values by name, each with the number of its last write.
pub type Values = BTreeMap<String, (Vec<u8>, u32)>;

/// Names and values that were written to them.
pub type Written = Vec<(String, Vec<u8>)>;

/// Shared data that the fuzzer can reach into: who clones it sees the same.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// What is there.
    pub values: Rc<RefCell<Values>>,
    /// All that was written through [`Store::put`], which nobody has corrupted.
    pub whole: Rc<RefCell<Written>>,
    /// So many writes come too late.
    pub losses: Rc<Cell<u8>>,
    numbers: Rc<Cell<u32>>,
}

impl Shared {
    /// Puts bytes there as a torn write or another filter would.
    pub fn corrupt(&self, name: &str, value: &[u8]) {
        self.values.borrow_mut().insert(name.to_owned(), (value.to_vec(), self.number()));
    }

    /// Whether what stands there was once written there, whole.
    pub fn is_whole(&self, name: &str) -> bool {
        let values = self.values.borrow();
        let value = values.get(name).map(|(value, _)| value);
        value.is_some_and(|value| self.whole.borrow().iter().any(|(at, whole)| at == name && whole == value))
    }

    fn number(&self) -> u32 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }
}

impl Store for Shared {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        self.values.borrow().get(name).cloned()
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        if let Some(left) = self.losses.get().checked_sub(1) {
            self.losses.set(left);
            return Err(Lost);
        }
        let found = self.values.borrow().get(name).map(|(_, number)| *number);
        match (over, found) {
            (Over::Nothing, None) => {}
            (Over::This(wanted), Some(number)) if wanted == number => {}
            _ => return Err(Lost),
        }
        self.values.borrow_mut().insert(name.to_owned(), (value.to_vec(), self.number()));
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
