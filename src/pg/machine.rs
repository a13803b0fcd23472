//! The memory that the server may take: of the machine, and of the cgroups that it is in.

use std::fs;
use std::path::{Component, Path, PathBuf};

const MB: u64 = 1 << 20;
/// The automatic limit in MB where the machine and its cgroups allow it.
pub const LEAST_MB: i32 = 1024;

/// Returns the automatic `nitro.max_memory` in MB, at least `least` and at most `most`. It is a
/// quarter of the smaller one of machine and cgroup, or 1 GB if that is more. It is never over half
/// of a cgroup's limit, because the cgroup also holds the buffers and sessions of the server.
pub fn automatic_mb(machine: u64, cgroup: Option<u64>, least: i32, most: i32) -> i32 {
    let quarter = cgroup.map_or(machine, |cgroup| cgroup.min(machine)) / 4;
    let wanted = (quarter / MB).max(LEAST_MB as u64);
    let allowed = cgroup.map_or(wanted, |cgroup| wanted.min(cgroup / 2 / MB));
    i32::try_from(allowed).unwrap_or(i32::MAX).clamp(least, most)
}

/// Returns the bytes of memory that the machine has.
pub fn memory() -> u64 {
    // SAFETY: two plain questions.
    let (pages, size) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    pages.max(0) as u64 * size.max(0) as u64
}

/// Returns the smallest limit in bytes of the cgroups that this process is in; `None` where none
/// has one.
pub fn cgroup_limit() -> Option<u64> {
    limit_below(Path::new("/"))
}

/// As [`cgroup_limit`], with files below `root`.
fn limit_below(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let limits = mounts.lines().filter_map(Mount::parse).filter_map(|mount| {
        let own = groups.lines().find_map(|line| mount.group(line))?;
        mount.limit(root, own)
    });
    limits.min()
}

/// A hierarchy of cgroups that limits memory, as this process sees it.
struct Mount {
    /// The cgroup that is at `at`.
    root: String,
    at: String,
    /// Version 2, which has all controllers in one hierarchy.
    unified: bool,
}

impl Mount {
    /// Reads a line of `mountinfo`:
    /// `ID PARENT DEVICE ROOT AT OPTIONS [TAG]... - TYPE SOURCE OPTIONS`.
    fn parse(line: &str) -> Option<Mount> {
        let (fixed, kind) = line.split_once(" - ")?;
        let mut fixed = fixed.split(' ').skip(3);
        let (root, at) = (fixed.next()?.to_owned(), fixed.next()?.to_owned());
        let mut kind = kind.split(' ');
        let unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        Some(Mount { root, at, unified })
    }

    /// Returns the group of this process if a line of `cgroup`, "ID:CONTROLLERS:PATH", is of this
    /// hierarchy.
    fn group<'a>(&self, line: &'a str) -> Option<&'a str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_ours = match self.unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|controller| controller == "memory"),
        };
        is_ours.then_some(path)
    }

    /// Returns the smallest limit of the group at `own` and of those around it.
    fn limit(&self, root: &Path, own: &str) -> Option<u64> {
        let names: &[&str] = match self.unified {
            true => &["memory.max", "memory.high"],
            false => &["memory.limit_in_bytes"],
        };
        // The path is outside of the mounted part. The mounted group is the nearest one that can be
        // seen.
        let below = Path::new(own).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let inside = below.components().all(|part| matches!(part, Component::Normal(_)));
        let top = root.join(self.at.trim_start_matches('/'));
        let mut group: PathBuf = if inside { top.join(below) } else { top.clone() };
        let mut least = None;
        loop {
            for name in names {
                // "max" is no number, and no limit.
                let limit = fs::read_to_string(group.join(name)).ok();
                let limit: Option<u64> = limit.and_then(|limit| limit.trim().parse().ok());
                least = [least, limit].into_iter().flatten().min();
            }
            if group == top || !group.pop() {
                return least;
            }
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
