#![no_main]

use nitro_image::fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::manifest(bytes);
    fuzz::manifest(&fuzz::mend_manifest(bytes));
});
