//! Calls of `CopyErrorData` in the library that the server loads go to `__wrap_CopyErrorData`, see
//! `src/pg/witness.rs`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=CopyErrorData");
    // Another library may have one of this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
