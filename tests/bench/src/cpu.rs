//! What the kernel says of a process.

use crate::Result;

/// Nanoseconds on a processor, of all threads that live now. The servers that are measured keep their threads.
pub fn nanoseconds(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split(' ').next().ok_or("schedstat is empty")?;
        sum += first.parse::<u64>()?;
    }
    Ok(sum)
}

/// Kilobytes of memory that belong to no file.
pub fn anonymous_kb(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(value.trim().trim_end_matches(" kB").parse()?)
}
