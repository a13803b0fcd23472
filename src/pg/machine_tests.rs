use super::*;

const GB: u64 = 1 << 30;

fn automatic(machine: u64, cgroup: Option<u64>) -> i32 {
    automatic_mb(machine, cgroup, 16, 262_144)
}

#[test]
fn a_quarter_but_a_gigabyte_and_half_of_a_cgroup() {
    assert_eq!(automatic(64 * GB, None), 16 * 1024);
    assert_eq!(automatic(3 * GB, None), 1024, "at least 1 GB");
    assert_eq!(automatic(GB, None), 1024, "taken as it is needed");
    assert_eq!(automatic(64 * GB, Some(16 * GB)), 4 * 1024, "of the smaller");
    assert_eq!(automatic(8 * GB, Some(64 * GB)), 2 * 1024, "of the smaller");
    assert_eq!(automatic(64 * GB, Some(3 * GB)), 1024);
    assert_eq!(automatic(64 * GB, Some(GB)), 512, "half of the cgroup");
    assert_eq!(automatic(64 * GB, Some(20 << 20)), 16, "the smallest area there is");
    assert_eq!(automatic(64 * GB, Some(0)), 16);
    assert_eq!(automatic(4096 * GB, None), 262_144, "the largest area there is");
    assert_eq!(automatic(u64::MAX, Some(u64::MAX)), 262_144);
}

/// Files as a process sees them, in a folder that goes at the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, cgroup: &str, mountinfo: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("nitro-{name}-{}", std::process::id()));
        let files = Files(folder);
        files.write("proc/self/cgroup", cgroup);
        files.write("proc/self/mountinfo", mountinfo);
        files
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn limit(&self) -> Option<u64> {
        limit_below(&self.0)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
                  31 24 0:27 / /sys/firmware rw - efivarfs efivarfs rw\n";
const V1: &str = "33 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                  34 30 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

#[test]
fn nested_groups_of_version_2() {
    let files = Files::new("v2", "0::/system.slice/postgresql.service\n", V2);
    assert_eq!(files.limit(), None, "no file of a limit");
    files.write("sys/fs/cgroup/system.slice/memory.max", "max\n");
    files.write("sys/fs/cgroup/system.slice/postgresql.service/memory.max", "max\n");
    assert_eq!(files.limit(), None, "no limit");
    files.write("sys/fs/cgroup/system.slice/postgresql.service/memory.max", "8589934592\n");
    assert_eq!(files.limit(), Some(8 * GB));
    files.write("sys/fs/cgroup/system.slice/memory.max", "4294967296\n");
    assert_eq!(files.limit(), Some(4 * GB), "the group around it is smaller");
    files.write("sys/fs/cgroup/system.slice/postgresql.service/memory.high", "1073741824\n");
    assert_eq!(files.limit(), Some(GB), "where the kernel begins to hold it back");
    files.write("sys/fs/cgroup/other.slice/memory.max", "1\n");
    assert_eq!(files.limit(), Some(GB), "not of another group");
}

#[test]
fn a_container_sees_its_group_as_the_root() {
    let files = Files::new("container", "0::/\n", V2);
    files.write("sys/fs/cgroup/memory.max", "2147483648\n");
    assert_eq!(files.limit(), Some(2 * GB));
    let outside = Files::new("outside", "0::/../../init.scope\n", V2);
    outside.write("sys/fs/cgroup/memory.max", "2147483648\n");
    outside.write("sys/init.scope/memory.max", "1\n");
    assert_eq!(outside.limit(), Some(2 * GB), "no further up than what is mounted");
}

#[test]
fn groups_of_version_1() {
    let groups = "12:cpu,cpuacct:/docker/a\n5:name=systemd:/docker/a\n4:memory:/docker/a\n0::/x\n";
    let files = Files::new("v1", groups, V1);
    files.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    files.write("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "9223372036854771712\n");
    files.write("sys/fs/cgroup/cpu/docker/a/memory.limit_in_bytes", "1\n");
    let unlimited = files.limit();
    assert_eq!(automatic(64 * GB, unlimited), 16 * 1024, "as good as no limit: {unlimited:?}");
    files.write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "3221225472\n");
    assert_eq!(files.limit(), Some(3 * GB), "of the group around it");
    files.write("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "1073741824\n");
    assert_eq!(files.limit(), Some(GB));
}

#[test]
fn a_part_of_a_hierarchy_is_mounted() {
    // Without a namespace of its own a container sees its full path, and its own group as the
    // mount.
    let mount = "34 30 0:30 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let files = Files::new("part", "4:memory:/docker/a\n", mount);
    files.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    assert_eq!(files.limit(), Some(GB));
    let other = Files::new("other", "4:memory:/docker/abc/d\n", mount);
    other.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    other.write("sys/fs/cgroup/memory/bc/d/memory.limit_in_bytes", "1\n");
    assert_eq!(other.limit(), Some(GB), "another group whose name begins the same");
}

#[test]
fn files_that_are_absent_or_odd() {
    assert_eq!(limit_below(Path::new("/nowhere")), None);
    let odd =
        Files::new("odd", "\n::\n0\n0::/a\n", "\n - \n1 2 3 - cgroup2\n1 2 3 / - cgroup2 a b\n");
    assert_eq!(odd.limit(), None);
    let files = Files::new("empty", "0::/a\n", V2);
    for text in ["", "-1\n", "lots\n", "99999999999999999999999\n"] {
        files.write("sys/fs/cgroup/a/memory.max", text);
        assert_eq!(files.limit(), None, "{text}");
    }
    // Two hierarchies: each counts.
    let both = Files::new("both", "4:memory:/a\n0::/a\n", &format!("{V1}{V2}"));
    both.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4294967296\n");
    both.write("sys/fs/cgroup/a/memory.max", "2147483648\n");
    assert_eq!(both.limit(), Some(2 * GB));
}
