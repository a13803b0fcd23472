//! Tests that start servers. `ci/check.sh` runs them, each as one verdict.

mod adopted;
mod alarms;
mod alerts;
mod beside;
mod bringing_up;
mod carried_images;
mod copied_slot;
mod deferred;
mod elsewhere;
mod feed;
mod first;
mod known;
mod open_schema;
mod orders;
mod owners_code;
mod packing;
mod promotion;
mod rights;
mod shards;
mod small_images;
mod standby_events;
mod standby_reads;
mod standby_service;
mod standby_storms;
mod standbys;
mod updates;
