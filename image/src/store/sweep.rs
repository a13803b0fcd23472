//! Removing what no image needs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::{KEPT, MANIFEST, Store, TEMPORARY, shard_name};
use crate::{Damage, Disk};

/// Shards that images carry, by generation and number.
type Carried = BTreeSet<(u64, u32)>;

impl<D: Disk> Store<D> {
    /// Removes what is no image or not needed: generations without a manifest other than
    /// `in_progress`, their temporary files, all images but the newest two, and an empty folder. Of
    /// a generation that goes, the shards stay that one of the newest two carries.
    pub fn sweep(
        &self,
        database: u32,
        incarnation: u128,
        in_progress: Option<u64>,
    ) -> io::Result<()> {
        let folder = self.incarnation_folder(database, incarnation);
        let (mut images, mut old) = (0, Vec::new());
        let collected = self.collected(database, incarnation)?.into_iter().map(|g| (g, true));
        let mut all: Vec<(u64, bool)> = collected.collect();
        all.extend(self.generations(&folder)?.into_iter().map(|generation| (generation, false)));
        all.sort_unstable_by(|a, b| b.cmp(a));
        let (mut carried, mut gone) = (Carried::new(), Vec::new());
        for (generation, collected) in all {
            if collected {
                images += 1;
                if images > KEPT {
                    old.push(generation);
                }
                continue;
            }
            if Some(generation) == in_progress {
                continue;
            }
            let folder = folder.join(generation.to_string());
            let names = self.list(&folder)?;
            if images < KEPT && names.iter().any(|name| name == MANIFEST) {
                images += 1;
                self.remove_file(&folder.join(TEMPORARY))?;
                carried.extend(self.carried_by(database, incarnation, generation)?);
            } else {
                gone.push((generation, folder));
            }
        }
        // All manifests before the first shard: any of them may name it (S1).
        gone.iter().try_for_each(|(_, folder)| self.remove_manifest(folder))?;
        for (generation, path) in &gone {
            self.remove_shards(*generation, path, &carried)?;
        }
        if !old.is_empty() {
            self.drop_collected(database, incarnation, |one| old.contains(&one), false)?;
        }
        self.remove_if_empty(&folder)
    }

    /// Returns the shards that an image carries. One that is damaged cannot be loaded, so it needs
    /// none. An image that cannot be read now may need any: that is an error.
    fn carried_by(&self, database: u32, incarnation: u128, generation: u64) -> io::Result<Carried> {
        match self.manifest(database, incarnation, generation) {
            Ok(manifest) => {
                let files = manifest.into_iter().flat_map(|manifest| manifest.carried);
                Ok(files.map(|file| (file.generation, file.shard)).collect())
            }
            Err(Damage::Io(error)) => Err(error),
            Err(_) => Ok(Carried::new()),
        }
    }

    /// Removes the folder of a generation that is no image, but for shards that are carried.
    fn remove_shards(&self, generation: u64, folder: &Path, carried: &Carried) -> io::Result<()> {
        let of_it = carried.range((generation, 0)..=(generation, u32::MAX));
        let stay: BTreeSet<String> = of_it.map(|&(_, shard)| shard_name(shard)).collect();
        if stay.is_empty() {
            return self.remove_tree(folder);
        }
        for name in self.list(folder)?.into_iter().filter(|name| !stay.contains(name)) {
            self.remove_tree(&folder.join(name))?;
        }
        Ok(())
    }
}
