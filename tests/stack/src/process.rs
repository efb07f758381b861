//! One child process: started with its output in a log file, waited for with a bound, ended and reaped.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, scratch};

/// How long a process may take to become ready.
const READY: Duration = Duration::from_secs(15);
/// How long a process may take to follow SIGTERM before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A running or ended child. Dropping it ends and reaps it.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
    patience: Duration,
}

impl Process {
    /// Starts `command` with both outputs appended to `log`. The kernel kills it when the calling thread ends.
    pub(crate) fn spawn(name: &'static str, mut command: Command, log: &Path) -> Result<Process, Error> {
        let open = || -> io::Result<(File, File)> {
            let file = OpenOptions::new().create(true).append(true).open(log)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().map_err(|e| Error::new(scratch::show(log), e, "a log file"))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let parent = std::process::id();
        // SAFETY: between fork and exec the closure makes two system calls that POSIX and Linux allow there, and
        // allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have ended before the line above; then no signal would ever come.
                if libc::getppid() as u32 != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::new(name, format!("{program}: {e}"), "a program that starts")
        })?;
        Ok(Process { name, child, log: log.to_owned(), patience: READY })
    }

    /// Waits longer than 15 s: for a process that runs much slower than it would alone.
    pub(crate) fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Waits until `ready` says so, at most 15 s.
    ///
    /// # Errors
    /// The time is over or the process has ended; with the end of the log.
    pub(crate) fn wait_until(&mut self, wanted: &str, mut ready: impl FnMut() -> bool) -> Result<(), Error> {
        let end = Instant::now() + self.patience;
        loop {
            // Asked first: a port may be answered by somebody else after the process has failed to bind it.
            if !self.is_running() {
                return Err(self.error("the process has ended", wanted));
            }
            if ready() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(self.error(format!("not so after {:?}", self.patience), wanted));
            }
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn error(&self, found: impl std::fmt::Display, wanted: &str) -> Error {
        Error::new(self.name, found, wanted).with_log(&self.log())
    }

    /// All that the process has written, over all its restarts.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The number of the process, as /proc has it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGTERM.
    pub(crate) fn terminate(&mut self) {
        self.signal(libc::SIGTERM);
    }

    /// SIGSTOP: the process keeps its connections and answers nothing.
    pub(crate) fn stop(&mut self) {
        self.signal(libc::SIGSTOP);
    }

    /// SIGCONT.
    pub(crate) fn cont(&mut self) {
        self.signal(libc::SIGCONT);
    }

    /// SIGKILL, and reaps the process.
    pub(crate) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        // The only error is that there is nothing left to reap.
        let _ = self.child.wait();
    }

    fn signal(&mut self, signal: libc::c_int) {
        // Asking first reaps an ended child, whose number may belong to another process by now.
        if self.is_running() {
            // SAFETY: a system call on integers; the number is that of our own child, which is not reaped yet.
            unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        self.cont(); // a stopped process follows SIGTERM only when it goes on
        let end = Instant::now() + GRACE;
        while self.is_running() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        self.kill();
    }
}
