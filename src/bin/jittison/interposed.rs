//! [`check_variables`]: variables of the program that a shared library has, too.
//!
//! A native linker exports them, and the library uses those of the program. Here the library goes on using its own. Programs that
//! bring the functions that use such a variable, as many bring `getopt`, are not concerned.

use jittison::JitDylib;
use jittison::session::SymbolFlags;

use crate::archives::Requirements;

/// Refuses a program that defines such a variable and refers to a function of the C library that uses it.
pub fn check_variables(dylib: &JitDylib, requirements: &Requirements) -> Result<(), String> {
    let is_exported = |name: &str| dylib.symbol_flags(name).is_some_and(|flags| flags.contains(SymbolFlags::EXPORTED));
    let missing = requirements.missing_in(dylib);
    for (variables, functions) in USED {
        let defined = variables.iter().find(|name| is_exported(name));
        let used = functions.iter().find(|name| missing.contains(name));
        if let (Some(variable), Some(function)) = (defined, used) {
            return Err(format!(
                "the files define the variable `{variable}`, and `{function}` of the C library goes on using its own; nothing was run; \
                 leave the definition out, or declare it hidden"
            ));
        }
    }
    Ok(())
}

/// Variables of the C library, and functions that read or write them (POSIX).
const USED: [(&[&str], &[&str]); 4] = [
    (&["optind", "optarg", "opterr", "optopt"], &["getopt", "getopt_long", "getopt_long_only"]),
    (&["timezone", "daylight", "tzname"], &["tzset", "localtime", "localtime_r", "mktime", "ctime", "strftime"]),
    (&["signgam"], &["lgamma", "lgammaf", "lgammal", "gamma", "gammaf", "gammal"]),
    (
        &["environ", "__environ"],
        &["getenv", "secure_getenv", "setenv", "putenv", "unsetenv", "clearenv", "execv", "execvp", "system"],
    ),
];
