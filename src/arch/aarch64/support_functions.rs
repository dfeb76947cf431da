//! [`support_function`]: functions of the compiler's support library that compiled code calls, and that no shared library has.
//!
//! Compilers call such a function for each atomic operation, unless they compile for a processor that has atomic instructions
//! (`-moutline-atomics`, the default; LSE64 of the Arm ARM). A native linker takes the functions from `libgcc.a` or from
//! compiler-rt. This library contains those of the Rust compiler, and offers them to linked code.

use std::ffi::c_void;

/// The address of a support function.
pub(crate) fn support_function(name: &str) -> Option<*const c_void> {
    if !name.starts_with("__aarch64_") {
        return None;
    }
    let all = [ATOMICS_1, ATOMICS_2, ATOMICS_4, ATOMICS_8];
    let found = all.as_flattened().iter().chain(&COMPARE_AND_SWAP_16).find(|(known, _)| *known == name);
    found.map(|(_, function)| *function as *const c_void)
}

type SupportFunction = (&'static str, unsafe extern "C" fn());

/// The functions of one operation and size, one for each memory order.
macro_rules! orders {
    ($operation:literal, $size:literal) => {
        [
            support!(concat!("__aarch64_", $operation, $size, "_relax")),
            support!(concat!("__aarch64_", $operation, $size, "_acq")),
            support!(concat!("__aarch64_", $operation, $size, "_rel")),
            support!(concat!("__aarch64_", $operation, $size, "_acq_rel")),
        ]
    };
}

macro_rules! support {
    ($name:expr) => {{
        unsafe extern "C" {
            #[link_name = $name]
            fn function();
        }
        ($name, function as unsafe extern "C" fn())
    }};
}

/// The functions of one size.
macro_rules! operations {
    ($size:literal) => {
        flat([
            orders!("cas", $size),
            orders!("swp", $size),
            orders!("ldadd", $size),
            orders!("ldclr", $size),
            orders!("ldeor", $size),
            orders!("ldset", $size),
        ])
    };
}

const ATOMICS_1: [SupportFunction; 24] = operations!("1");
const ATOMICS_2: [SupportFunction; 24] = operations!("2");
const ATOMICS_4: [SupportFunction; 24] = operations!("4");
const ATOMICS_8: [SupportFunction; 24] = operations!("8");
const COMPARE_AND_SWAP_16: [SupportFunction; 4] = orders!("cas", "16");

const fn flat(operations: [[SupportFunction; 4]; 6]) -> [SupportFunction; 24] {
    let mut all = [operations[0][0]; 24];
    let mut at = 0;
    while at < 24 {
        all[at] = operations[at / 4][at % 4];
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_atomic_operation_has_a_function_of_its_own() {
        let mut addresses = std::collections::HashSet::new();
        for order in ["relax", "acq", "rel", "acq_rel"] {
            for operation in ["cas", "swp", "ldadd", "ldclr", "ldeor", "ldset"] {
                for size in [1, 2, 4, 8] {
                    addresses.insert(support_function(&format!("__aarch64_{operation}{size}_{order}")).unwrap());
                }
            }
            addresses.insert(support_function(&format!("__aarch64_cas16_{order}")).unwrap());
        }
        assert_eq!(addresses.len(), 100);
        assert_eq!(support_function("__aarch64_swp16_acq"), None);
        assert_eq!(support_function("malloc"), None);
    }
}
