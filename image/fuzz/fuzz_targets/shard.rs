#![no_main]

use nitro_image::fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::shard(bytes);
    fuzz::shard(&fuzz::mend_shard(bytes));
});
