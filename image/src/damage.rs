//! Why an image, or a part of it, is refused.

use std::{fmt, io};

use crate::shard::ShardId;

/// The fault of a shard or a manifest. None is fatal: the image is of no use, and the index is
/// rebuilt from its table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// The file system failed, which says nothing about the image itself.
    Io(io::Error),
    /// The manifest names this shard, but its file is missing.
    Missing {
        /// Number of the shard.
        shard: u32,
    },
    /// The file ends too early.
    Truncated,
    /// The file goes on after its end.
    Trailing,
    /// The file is something else.
    Magic,
    /// Written by another release, in this format version.
    Version(u32),
    /// The header of a shard does not match its checksum.
    Header,
    /// An intact shard, but of another index, generation or key range.
    Foreign(Box<ShardId>),
    /// A frame, counted from 0, does not match the running checksum.
    Checksum {
        /// Number of the frame.
        frame: u64,
    },
    /// A frame has a good checksum, but cannot be decoded.
    Frame {
        /// Number of the frame.
        frame: u64,
        /// The impossible value.
        what: &'static str,
    },
    /// A shard of an older image does not have the frames that the image uses.
    Carried {
        /// Generation of the older image.
        generation: u64,
        /// Number of the shard in it.
        shard: u32,
        /// Its fault, as a verb and an object.
        what: &'static str,
    },
    /// A shard is intact, but not the one that its manifest describes.
    Summary {
        /// The part that differs.
        what: &'static str,
    },
    /// A line of a manifest, counted from 1, is not what it must be.
    Manifest {
        /// Number of the line.
        line: usize,
        /// The expected value.
        expected: &'static str,
    },
    /// The manifest does not match its checksum.
    ManifestChecksum,
    /// The manifest has a good checksum, but is not in the one form that a manifest has.
    ManifestForm,
    /// The manifest describes another index or generation than the folder it is in.
    Misplaced,
    /// A file of small images has bytes that are no image.
    Collection,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Io(error) => write!(f, "could not read: {error}"),
            Damage::Missing { shard } => write!(f, "shard {shard} is missing"),
            Damage::Truncated => write!(f, "truncated"),
            Damage::Trailing => write!(f, "unexpected bytes after the end"),
            Damage::Magic => write!(f, "not a part of an image"),
            Damage::Version(version) => write!(f, "unknown format version {version}"),
            Damage::Header => write!(f, "bad checksum in the header"),
            Damage::Foreign(id) => write!(f, "belongs elsewhere: {id}"),
            Damage::Checksum { frame } => write!(f, "bad checksum in frame {frame}"),
            Damage::Frame { frame, what } => write!(f, "malformed frame {frame}: {what}"),
            Damage::Carried { generation, shard, what } => {
                write!(f, "it uses shard {shard} of image {generation}, and that shard {what}")
            }
            Damage::Summary { what } => write!(f, "does not match its manifest: {what}"),
            Damage::Manifest { line, expected } => {
                write!(f, "line {line} of the manifest: expected {expected}")
            }
            Damage::ManifestChecksum => write!(f, "bad checksum in the manifest"),
            Damage::ManifestForm => write!(f, "malformed manifest"),
            Damage::Collection => write!(f, "an image in its file is damaged"),
            Damage::Misplaced => write!(f, "the manifest belongs to another folder"),
        }
    }
}

impl std::error::Error for Damage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Damage::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Damage::Truncated,
            _ => Damage::Io(error),
        }
    }
}
