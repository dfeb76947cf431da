//! Exports `main`, by whose address `subsecond` finds the program, as the linker of its tool does.

fn main() {
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
