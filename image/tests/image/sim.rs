//! A disk in memory that loses what was not synced, ignores syncs, and fails.
//!
//! After a crash a file that was not synced has its old contents, the new ones, or any mixture of
//! them with zeros and garbage; and a folder that was not synced has seen any subset of the
//! operations on it since, each of them whole.

mod tree;

use std::io::{self, Cursor, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use nitro_image::{Disk, Store};

use crate::content::FRAME;
pub use tree::Tree;
use tree::{Change, Node, split};

/// What a sync is for, as far as the disk can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Shard,
    ManifestContents,
    ShardNames,
    ManifestName,
    ManifestRemoval,
    CollectionContents,
    CollectionName,
    Folders,
}

/// Calls that fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The first call that fails, counted from 0.
    pub at: usize,
    /// Whether all calls after it fail as well.
    pub lasting: bool,
    /// Whether the call does its work before it fails.
    pub late: bool,
    pub kind: ErrorKind,
}

type Hook = Box<dyn FnOnce() + Send>;

struct State {
    tree: Tree,
    /// Whether small images are collected.
    collects: bool,
    full: bool,
    /// Whether locks lock.
    locks: bool,
    locked: bool,
    /// The tree after every change, if it is recorded.
    history: Option<Vec<Tree>>,
    changes: usize,
    calls: usize,
    ignored: Option<Purpose>,
    fault: Option<Fault>,
    hook: Option<(usize, Hook)>,
}

/// A disk; clones are the same disk.
#[derive(Clone)]
pub struct Sim(Arc<Mutex<State>>);

pub struct SimFile {
    sim: Sim,
    node: usize,
    purpose: Purpose,
}

impl Sim {
    pub fn new() -> Sim {
        Sim::mount(Tree::empty())
    }

    pub fn mount(tree: Tree) -> Sim {
        Sim(Arc::new(Mutex::new(State {
            tree,
            collects: false,
            full: false,
            locks: true,
            locked: false,
            history: None,
            changes: 0,
            calls: 0,
            ignored: None,
            fault: None,
            hook: None,
        })))
    }

    /// The same disk, on which small images are collected or not.
    pub fn collecting(self, collects: bool) -> Sim {
        self.state().collects = collects;
        self
    }

    /// Makes locks do nothing.
    pub fn without_locks(self) -> Sim {
        self.state().locks = false;
        self
    }

    pub fn store(&self) -> Store<Sim> {
        let store = Store::new(self.clone(), "/data/pg_nitro").with_frame_size(FRAME);
        if self.state().collects { store } else { store.without_collections() }
    }

    /// Keeps the tree after every change from now on.
    pub fn record(&self) {
        let mut state = self.state();
        state.history = Some(vec![state.tree.clone()]);
        state.changes = 0;
    }

    /// The trees recorded; the first is from before the first change.
    pub fn history(&self) -> Vec<Tree> {
        self.state().history.take().expect("recorded")
    }

    pub fn tree(&self) -> Tree {
        self.state().tree.clone()
    }

    /// How many changes were recorded.
    pub fn changes(&self) -> usize {
        self.state().changes
    }

    /// How many calls there were, changes or not.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Makes syncs for this purpose do nothing.
    pub fn ignore(&self, purpose: Purpose) {
        self.state().ignored = Some(purpose);
    }

    /// Lets no more bytes be written.
    pub fn fill(&self) {
        self.state().full = true;
    }

    /// Makes calls fail, counted from now.
    pub fn fail(&self, fault: Option<Fault>) {
        let mut state = self.state();
        state.calls = 0;
        state.fault = fault;
    }

    /// Does something in front of a call, counted from now. It waits until nothing is locked.
    pub fn interrupt(&self, at: usize, hook: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.calls = 0;
        state.hook = Some((at, Box::new(hook)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn call<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        if let Some((_, hook)) = hook(&mut state, call) {
            drop(state);
            hook();
            state = self.state();
        }
        let fault =
            state.fault.filter(|fault| call == fault.at || fault.lasting && call > fault.at);
        match fault {
            None => work(&mut state),
            Some(Fault { late: true, kind, .. }) => work(&mut state).and(Err(kind.into())),
            Some(Fault { kind, .. }) => Err(kind.into()),
        }
    }

    fn change<T>(&self, work: impl FnOnce(&mut Tree) -> io::Result<T>) -> io::Result<T> {
        self.call(|state| state.record(work))
    }
}

fn hook(state: &mut State, call: usize) -> Option<(usize, Hook)> {
    let locked = state.locked;
    state.hook.take_if(|(at, _)| *at <= call && !locked)
}

/// A lock of the one folder that has any.
pub struct SimLock(Sim);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl State {
    fn record<T>(&mut self, work: impl FnOnce(&mut Tree) -> io::Result<T>) -> io::Result<T> {
        let result = work(&mut self.tree);
        if let Some(history) = &mut self.history {
            history.push(self.tree.clone());
            self.changes += 1;
        }
        result
    }
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let node = self.node;
        if self.sim.state().full {
            return Err(ErrorKind::StorageFull.into());
        }
        self.sim.change(|tree| {
            if let Node::File { data, .. } = &mut tree.0[node] {
                data.extend_from_slice(bytes);
            }
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Sim {
    type File = SimFile;
    type Input = Cursor<Vec<u8>>;
    type Lock = SimLock;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|tree| tree.add(path, Tree::folder()).map(|_| ()))
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let purpose = match split(path).1 {
            name if name.starts_with("manifest") => Purpose::ManifestContents,
            name if name.starts_with("small-") => Purpose::CollectionContents,
            _ => Purpose::Shard,
        };
        let node = self.change(|tree| match tree.find(path) {
            Ok(node) => match &mut tree.0[node] {
                Node::File { data, .. } => {
                    data.clear();
                    Ok(node)
                }
                Node::Folder { .. } => Err(ErrorKind::IsADirectory.into()),
            },
            Err(_) => tree.add(path, Node::File { data: vec![], durable: vec![] }),
        })?;
        Ok(SimFile { sim: self.clone(), node, purpose })
    }

    fn sync(&self, file: &SimFile) -> io::Result<()> {
        self.call(|state| {
            if state.ignored == Some(file.purpose) {
                return Ok(());
            }
            state.record(|tree| {
                if let Node::File { data, durable } = &mut tree.0[file.node] {
                    durable.clone_from(data);
                }
                Ok(())
            })
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            let at = state.tree.find(path)?;
            let Node::Folder { pending, .. } = &state.tree.0[at] else {
                return Err(ErrorKind::NotADirectory.into());
            };
            if state.ignored == Some(Purpose::of_folder(pending)) {
                return Ok(());
            }
            state.record(|tree| {
                if let Node::Folder { names, durable, pending } = &mut tree.0[at] {
                    durable.clone_from(names);
                    pending.clear();
                }
                Ok(())
            })
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((folder, from_name), (_, to_name)) = (split(from), split(to));
        self.change(|tree| {
            let node = tree.find(from)?;
            tree.change(folder, Change::Rename(from_name, to_name, node))
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = split(path);
        self.change(|tree| match tree.0[tree.find(path)?] {
            Node::File { .. } => tree.change(folder, Change::Remove(name)),
            Node::Folder { .. } => Err(ErrorKind::IsADirectory.into()),
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = split(path);
        self.change(|tree| match tree.names(path)?.is_empty() {
            true => tree.change(folder, Change::Remove(name)),
            false => Err(ErrorKind::DirectoryNotEmpty.into()),
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.call(|state| Ok(state.tree.names(path)?.keys().cloned().collect()))
    }

    fn open(&self, path: &Path) -> io::Result<(Cursor<Vec<u8>>, u64)> {
        self.call(|state| match &state.tree.0[state.tree.find(path)?] {
            Node::File { data, .. } => Ok((Cursor::new(data.clone()), data.len() as u64)),
            Node::Folder { .. } => Err(ErrorKind::IsADirectory.into()),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<SimLock> {
        let lock = |state: &mut State| {
            state.tree.names(path)?;
            assert!(!state.locked, "a lock within a lock");
            state.locked = state.locks;
            Ok(())
        };
        let locked = self.call(lock);
        let lock = SimLock(self.clone());
        locked.map(|()| lock)
    }
}

impl Purpose {
    /// A folder is synced for the last thing that was done to it.
    fn of_folder(pending: &[Change]) -> Purpose {
        match pending.last() {
            Some(Change::Rename(_, name, _)) if name.starts_with("small-") => {
                Purpose::CollectionName
            }
            Some(Change::Rename(..)) => Purpose::ManifestName,
            Some(Change::Remove(name)) if name == "manifest" => Purpose::ManifestRemoval,
            Some(Change::Add(name, _)) if name.starts_with("shard-") => Purpose::ShardNames,
            _ => Purpose::Folders,
        }
    }
}
