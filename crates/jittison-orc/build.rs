//! Gives the shared library its SONAME, under which programs load it that were linked against it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libjittison_orc.so");
}
