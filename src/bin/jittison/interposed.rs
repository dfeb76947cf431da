//! [`check_interposed`]: variables and functions of the program that a shared library has, too.
//!
//! A native linker exports them, and the libraries use those of the program. Here they go on using those of the C library. Programs
//! that bring the functions that use such a name, as many bring `getopt`, are not concerned.

use jittison::JitDylib;
use jittison::session::SymbolFlags;

use crate::archives::Requirements;

/// Refuses a program that defines such a name and refers to a function of a library that uses it.
pub fn check_interposed(dylib: &JitDylib, requirements: &Requirements) -> Result<(), String> {
    let is_exported = |name: &str| dylib.symbol_flags(name).is_some_and(|flags| flags.contains(SymbolFlags::EXPORTED));
    let missing = requirements.missing_in(dylib);
    let find = |(names, users): &(&[&'static str], &[&'static str])| {
        let defined = names.iter().find(|name| is_exported(name))?;
        let user = users.iter().find(|name| missing.contains(name))?;
        Some((*defined, *user))
    };
    let problem = if let Some((variable, function)) = VARIABLES.iter().find_map(find) {
        format!("the variable `{variable}`, and `{function}` of the C library goes on using its own")
    } else if let Some((function, user)) = FUNCTIONS.iter().find_map(find) {
        format!("`{function}`, and `{user}` of a shared library goes on calling that of the C library")
    } else {
        return Ok(());
    };
    Err(format!("the files define {problem}; nothing was run; leave the definition out, or declare it hidden"))
}

/// Functions that programs replace, and functions of the C++ library that call them. Clang's `safe-stack` replaces `pthread_create`.
const FUNCTIONS: [(&[&str], &[&str]); 1] =
    [(&["pthread_create"], &["_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"])];

/// Variables of the C library, and functions that read or write them (POSIX).
const VARIABLES: [(&[&str], &[&str]); 4] = [
    (&["optind", "optarg", "opterr", "optopt"], &["getopt", "getopt_long", "getopt_long_only"]),
    (&["timezone", "daylight", "tzname"], &["tzset", "localtime", "localtime_r", "mktime", "ctime", "strftime"]),
    (&["signgam"], &["lgamma", "lgammaf", "lgammal", "gamma", "gammaf", "gammal"]),
    (
        &["environ", "__environ"],
        &["getenv", "secure_getenv", "setenv", "putenv", "unsetenv", "clearenv", "execv", "execvp", "system"],
    ),
];
