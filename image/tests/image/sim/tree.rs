//! What is on the disk, and what of it is durable.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::rng::Rng;

pub type Names = BTreeMap<String, usize>;

/// A file or folder; what it is called is known to its folder only.
#[derive(Clone)]
pub enum Node {
    File { data: Vec<u8>, durable: Vec<u8> },
    Folder { names: Names, durable: Names, pending: Vec<Change> },
}

/// An operation on a folder that a crash may undo.
#[derive(Clone)]
pub enum Change {
    Add(String, usize),
    Remove(String),
    Rename(String, String, usize),
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Add(name, node) => {
                names.insert(name.clone(), *node);
            }
            Change::Remove(name) => {
                names.remove(name);
            }
            Change::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// All files and folders; the first is the root.
#[derive(Clone)]
pub struct Tree(pub Vec<Node>);

impl Tree {
    /// An empty disk with the folder /data.
    pub fn empty() -> Tree {
        let names: Names = [("data".to_string(), 1)].into();
        let root = Node::Folder { names: names.clone(), durable: names, pending: vec![] };
        Tree(vec![root, Tree::folder()])
    }

    pub fn folder() -> Node {
        Node::Folder { names: Names::new(), durable: Names::new(), pending: vec![] }
    }

    pub fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for part in path.iter().filter(|part| *part != OsStr::new("/")) {
            let Node::Folder { names, .. } = &self.0[at] else {
                return Err(ErrorKind::NotADirectory.into());
            };
            at = *names.get(text(part)).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    pub fn names(&self, path: &Path) -> io::Result<&Names> {
        match &self.0[self.find(path)?] {
            Node::Folder { names, .. } => Ok(names),
            Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub fn change(&mut self, folder: &Path, change: Change) -> io::Result<()> {
        let at = self.find(folder)?;
        match &mut self.0[at] {
            Node::Folder { names, pending, .. } => {
                change.apply(names);
                pending.push(change);
                Ok(())
            }
            Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// Adds a node under a name that is free.
    pub fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let (folder, name) = split(path);
        if self.names(folder)?.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.0.push(node);
        self.change(folder, Change::Add(name, self.0.len() - 1))?;
        Ok(self.0.len() - 1)
    }

    /// What the machine finds after it stopped here.
    pub fn crash(&self, rng: &mut Rng) -> Tree {
        Tree(self.0.iter().map(|node| node.crash(rng)).collect())
    }
}

impl Node {
    fn crash(&self, rng: &mut Rng) -> Node {
        match self {
            Node::File { data, durable } => {
                let data = torn(data, durable, rng);
                Node::File { durable: data.clone(), data }
            }
            Node::Folder { durable, pending, .. } => {
                let percent = [0, 50, 80, 100][rng.below(4)];
                let mut names = durable.clone();
                let survivors = pending.iter().filter(|_| rng.chance(percent));
                survivors.for_each(|change| change.apply(&mut names));
                Node::Folder { durable: names.clone(), names, pending: vec![] }
            }
        }
    }
}

/// What is left of a file, of which `durable` was synced.
fn torn(data: &[u8], durable: &[u8], rng: &mut Rng) -> Vec<u8> {
    const BLOCK: usize = 64;
    if data == durable {
        return data.to_vec();
    }
    match rng.below(4) {
        0 => durable.to_vec(),
        1 => data.to_vec(),
        2 => data[..rng.below(data.len())].to_vec(),
        _ => {
            let mut data = data.to_vec();
            for block in data.chunks_mut(BLOCK) {
                match rng.below(3) {
                    0 => block.fill(0),
                    1 => block.iter_mut().for_each(|byte| *byte = rng.next() as u8),
                    _ => {}
                }
            }
            data
        }
    }
}

fn text(part: &OsStr) -> &str {
    part.to_str().expect("tests use plain names")
}

pub fn split(path: &Path) -> (&Path, String) {
    (path.parent().expect("not the root"), text(path.file_name().expect("a name")).to_string())
}
