//! A directory of one stack's own, for configurations, logs and data.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// A directory under the system's temporary directory, readable by this user only, removed on drop.
///
/// A thread that drops it while panicking keeps it and prints its path, so that the logs can be read.
pub struct Scratch {
    path: PathBuf,
    parts: AtomicU32,
}

impl Scratch {
    /// # Errors
    /// The directory cannot be made.
    pub fn new() -> Result<Scratch, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // A process id is unique among the living; the loop steps over what a dead one of the same id has left.
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("weir-stack-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    return Ok(Scratch { path, parts: AtomicU32::new(0) });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::new(show(&path), e, "a new directory")),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory inside, for one process.
    pub(crate) fn part(&self, name: &str) -> Result<PathBuf, Error> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{number}-{name}"));
        std::fs::create_dir(&path).map_err(|e| Error::new(show(&path), e, "a new directory"))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the stack's logs are in {}", self.path.display());
        } else if let Err(e) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} could not be removed: {e}", self.path.display());
        }
    }
}

/// Writes a file and names it in the error.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| Error::new(show(path), e, "a file written"))
}

pub(crate) fn show(path: &Path) -> String {
    path.display().to_string()
}
