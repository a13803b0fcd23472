//! The manifest: the index of an image, and the parts of the image.
//!
//! It is text, so that an administrator can read it: a title, one `name value` line per field in
//! the order of [`Manifest`], and a checksum. There is exactly one way to write a manifest. So the
//! strict reader needs no rule for each field: it writes the parsed manifest again, and must get
//! the same bytes.

use std::fmt::Write;
use std::str::FromStr;

use crate::Damage;
use crate::shard::{ShardId, ShardSummary};

/// Longest manifest in bytes.
pub const MAX_MANIFEST: usize = 1 << 20;

/// The title of a manifest with this format version. Version 4 has lines for carried files: a
/// manifest without them is one of version 3.
fn title(carries: bool) -> &'static str {
    if carries { "nitro image 4" } else { "nitro image 3" }
}

/// A file of an older image that has frames of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedFile {
    /// Generation of the older image.
    pub generation: u64,
    /// Number of the shard in it.
    pub shard: u32,
    /// Length of the file.
    pub bytes: u64,
    /// Bytes of all frames that were written to it.
    pub frames: u64,
    /// Bytes of the parts.
    pub used: u64,
}

/// The index of an image, and the parts of the image.
///
/// This crate checks that the manifest is intact. The caller compares its values with the index to
/// be loaded: the same server, an LSN that the WAL still reaches, the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// System identifier of the server.
    pub system: u64,
    /// The image has every entry of the index whose heap block has no WAL record after this LSN.
    pub lsn: u64,
    /// The entries of the image, and their lack, come from WAL before this LSN. That WAL was
    /// durable when the image appeared.
    pub end: u64,
    /// The timeline of both.
    pub timeline: u32,
    /// The mark of this image, which the record that ends at `end` wrote into the index. 0 in an
    /// image of a standby, which writes no WAL.
    pub mark: u64,
    /// Version number of the server.
    pub server: u32,
    /// Whether a replication slot kept the WAL after `lsn` when the image was taken.
    pub slot: bool,
    /// OID of the database.
    pub database: u32,
    /// OID of the index.
    pub index: u32,
    /// Tablespace of the table's file.
    pub heap_tablespace: u32,
    /// Number of the table's file.
    pub heap_file: u32,
    /// Identity of the index contents.
    pub incarnation: u128,
    /// Number of the image, ascending for each incarnation.
    pub generation: u64,
    /// Name of the index, for humans.
    pub name: String,
    /// Whatever decides the order and the encoding of keys, a line per column. Compared for
    /// equality.
    pub columns: Vec<String>,
    /// Number of entries in all shards.
    pub entries: u64,
    /// The index's count of operations at the image, which tells whether it changed since.
    pub operations: u64,
    /// When the image was taken, in seconds since 1970.
    pub taken: i64,
    /// The shards, in the order of their keys.
    pub shards: Vec<ShardSummary>,
    /// The files of older images that the shards refer to, by generation and number.
    pub carried: Vec<CarriedFile>,
}

impl Manifest {
    /// Whether a standby made the image.
    pub fn is_of_standby(&self) -> bool {
        self.mark == 0
    }

    /// The manifest as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{}\n", title(!self.carried.is_empty()));
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // A string takes whatever it is given.
            let _ = writeln!(text, "{name} {value}");
        };
        line("system", &self.system);
        for (name, lsn) in [("lsn", self.lsn), ("end", self.end)] {
            line(name, &format_args!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff));
        }
        line("timeline", &self.timeline);
        line("mark", &format_args!("{:016x}", self.mark));
        line("server", &self.server);
        line("slot", if self.slot { &"yes" } else { &"no" });
        line("database", &self.database);
        line("index", &self.index);
        line("heap_tablespace", &self.heap_tablespace);
        line("heap_file", &self.heap_file);
        line("incarnation", &format_args!("{:032x}", self.incarnation));
        line("generation", &self.generation);
        line("name", &escape(&self.name));
        for column in &self.columns {
            line("column", &escape(column));
        }
        line("entries", &self.entries);
        line("operations", &self.operations);
        line("taken", &self.taken);
        for ShardSummary { entries, bytes, crc } in &self.shards {
            line("shard", &format_args!("{entries} {bytes} {crc:08x}"));
        }
        for CarriedFile { generation, shard, bytes, frames, used } in &self.carried {
            line("carried", &format_args!("{generation} {shard} {bytes} {frames} {used}"));
        }
        text.push_str(&crc_line(text.as_bytes()));
        text.into_bytes()
    }

    /// Reads a manifest: exactly what [`encode`](Manifest::encode) writes.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, Damage> {
        if bytes.len() > MAX_MANIFEST {
            return Err(Damage::Trailing);
        }
        let mut lines = Lines { rest: checked_text(bytes)?, number: 0 };
        let manifest = Manifest {
            system: lines.value("system", number)?,
            lsn: lines.value("lsn", lsn)?,
            end: lines.value("end", lsn)?,
            timeline: lines.value("timeline", number)?,
            mark: lines.value("mark", |text| u64::from_str_radix(text, 16).ok())?,
            server: lines.value("server", number)?,
            slot: lines.value("slot", yes_or_no)?,
            database: lines.value("database", number)?,
            index: lines.value("index", number)?,
            heap_tablespace: lines.value("heap_tablespace", number)?,
            heap_file: lines.value("heap_file", number)?,
            incarnation: lines.value("incarnation", |text| u128::from_str_radix(text, 16).ok())?,
            generation: lines.value("generation", number)?,
            name: lines.value("name", unescape)?,
            columns: lines.values("column", unescape)?,
            entries: lines.value("entries", number)?,
            operations: lines.value("operations", number)?,
            taken: lines.value("taken", number)?,
            shards: lines.values("shard", shard)?,
            carried: lines.values("carried", carried)?,
        };
        match manifest.names_older_files() && manifest.encode() == bytes {
            true => Ok(manifest),
            false => Err(Damage::ManifestForm),
        }
    }

    /// Returns true if the carried files are of older images, each once and in order, and used.
    fn names_older_files(&self) -> bool {
        let older = |file: &CarriedFile| file.generation < self.generation && file.used != 0;
        let ascending =
            |a: &CarriedFile, b: &CarriedFile| (a.generation, a.shard) < (b.generation, b.shard);
        self.carried.iter().all(older) && self.carried.is_sorted_by(ascending)
    }

    /// Returns how many bytes its entries take, wherever they are.
    pub fn bytes(&self) -> u64 {
        self.carried.iter().fold(self.written(), |sum, file| sum.saturating_add(file.used))
    }

    /// Returns how many bytes were written for it.
    pub fn written(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.bytes))
    }

    /// The id of shard `shard` of this image.
    pub fn shard_id(&self, shard: u32) -> ShardId {
        let Manifest { database, incarnation, generation, .. } = *self;
        ShardId { database, incarnation, generation, shard }
    }
}

/// The lines between the title and the checksum, after both are checked.
fn checked_text(bytes: &[u8]) -> Result<&str, Damage> {
    let version = bytes.strip_prefix(b"nitro image ").ok_or(Damage::Magic)?;
    if ![b"3\n", b"4\n"].iter().any(|known| version.starts_with(*known)) {
        let digits = version.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let version = std::str::from_utf8(digits).ok().and_then(number);
        return Err(version.map_or(Damage::Magic, Damage::Version));
    }
    let (text, crc) = bytes.split_last_chunk::<CRC_LINE>().ok_or(Damage::Truncated)?;
    if crc != crc_line(text).as_bytes() {
        return Err(Damage::ManifestChecksum);
    }
    let text = std::str::from_utf8(text).map_err(|_| Damage::ManifestForm)?;
    text.split_once('\n').map(|(_, lines)| lines).ok_or(Damage::Truncated)
}

const CRC_LINE: usize = "crc32 01234567\n".len();

fn crc_line(text: &[u8]) -> String {
    format!("crc32 {:08x}\n", crc32fast::hash(text))
}

/// Takes `name value` lines off the front of a text.
struct Lines<'a> {
    rest: &'a str,
    /// How many were taken.
    number: usize,
}

impl<'a> Lines<'a> {
    /// The value of the next line if that is a line of `name`.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let (line, rest) = self.rest.split_once('\n')?;
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        self.rest = rest;
        self.number += 1;
        Some(value)
    }

    /// The value of the one line of `name`.
    fn value<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Damage> {
        // The title is line 1.
        let damage = Damage::Manifest { line: self.number + 2, expected: name };
        self.take(name).and_then(parse).ok_or(damage)
    }

    /// The values of all lines of `name`.
    fn values<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, Damage> {
        let mut values = Vec::new();
        while let Some(value) = self.take(name) {
            let damage = Damage::Manifest { line: self.number + 1, expected: name };
            values.push(parse(value).ok_or(damage)?);
        }
        Ok(values)
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// An LSN as PostgreSQL prints it.
fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |text| u32::from_str_radix(text, 16).ok().map(u64::from);
    Some(half(high)? << 32 | half(low)?)
}

fn shard(text: &str) -> Option<ShardSummary> {
    let mut words = text.split(' ');
    let entries = number(words.next()?)?;
    let bytes = number(words.next()?)?;
    let crc = u32::from_str_radix(words.next()?, 16).ok()?;
    Some(ShardSummary { entries, bytes, crc })
}

fn carried(text: &str) -> Option<CarriedFile> {
    let mut words = text.split(' ');
    let (generation, shard) = (number(words.next()?)?, number(words.next()?)?);
    let (bytes, frames) = (number(words.next()?)?, number(words.next()?)?);
    Some(CarriedFile { generation, shard, bytes, frames, used: number(words.next()?)? })
}

/// Keeps a text on one line.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        plain.push(match char {
            '\\' => match rest.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            char => char,
        });
    }
    Some(plain)
}
