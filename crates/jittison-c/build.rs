//! Gives the shared library its SONAME. Programs that link against it load `libjittison.so.0`, which `install` makes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libjittison.so.0");
}
