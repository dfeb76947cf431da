//! `dlsym`, `dlvsym` and `dladdr` answer linked code as they answer a shared library, and what they return stays in memory.

use std::process::Command;

use jittison::session::Visibility;
use jittison::{Jit, JitDylib};

use crate::recorder::{install, take};
use crate::support::*;

/// What the objects share.
const COMMON: &str = "
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <link.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    ";

/// A library that asks. Each bit of `facts` is one answer.
const UPPER: &str = "
    __attribute__((visibility(\"default\"))) long shared(void) { return 1; }
    long own(void) { return 10; }
    __attribute__((visibility(\"hidden\"))) long hidden_own(void) { return 11; }
    static long local_own(long value) { return value * 3 + 1; }
    long (*volatile keep_local)(long) = local_own;
    _Thread_local long counter = 40;
    extern long lower(void);
    static int says(const char *part) {
        const char *text = dlerror();
        return text && strstr(text, part) && dlerror() == 0;
    }
    static int visit(struct dl_phdr_info *info, size_t size, void *address) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            unsigned long start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            if (info->dlpi_phdr[i].p_type == PT_LOAD && (unsigned long)address - start < info->dlpi_phdr[i].p_memsz) {
                return 1;
            }
        }
        return 0;
    }
    long facts(void) {
        long facts = 0, bit = 0;
        #define FACT(expression) facts |= (long)!!(expression) << bit++
        Dl_info info, other;
        void *program = dlopen(NULL, RTLD_NOW);
        dlerror();
        FACT(dlsym(RTLD_DEFAULT, \"own\") == (void *)own);
        FACT(dlsym(RTLD_DEFAULT, \"shared\") == (void *)shared);
        FACT(dlsym(RTLD_DEFAULT, \"lower\") == (void *)lower);
        FACT(dlsym(RTLD_DEFAULT, \"drand48\") == (void *)drand48);
        FACT(dlsym(program, \"own\") == (void *)own);
        FACT(dlsym(program, \"drand48\") == (void *)drand48);
        FACT(dlerror() == 0);
        long (*next)(void) = dlsym(RTLD_NEXT, \"shared\");
        FACT(next && next() == 2);
        FACT(dlsym(RTLD_NEXT, \"drand48\") == (void *)drand48);
        FACT(dlsym(RTLD_NEXT, \"own\") == 0 && says(\"undefined symbol: own\"));
        FACT(dlsym(RTLD_DEFAULT, \"hidden_own\") == 0 && says(\"undefined symbol: hidden_own\"));
        FACT(dlsym(RTLD_DEFAULT, \"local_own\") == 0 && says(\"undefined symbol: local_own\"));
        FACT(dlsym(RTLD_DEFAULT, \"no_such_name\") == 0 && says(\"undefined symbol: no_such_name\"));
        FACT(dlsym(RTLD_DEFAULT, \"counter\") == (void *)&counter);
        FACT(dlsym(RTLD_DEFAULT, \"no_such_name\") == 0 && dlsym(RTLD_DEFAULT, \"own\") && dlerror() == 0);
        void *math = dlopen(\"libm.so.6\", RTLD_NOW | RTLD_LOCAL);
        FACT(math && dlsym(math, \"cos\"));
        FACT(math && dlsym(math, \"own\") == 0 && says(\"own\"));
        FACT(dlvsym(RTLD_NEXT, \"memcpy\", \"GLIBC_2.2.5\") != 0);
        FACT(dlvsym(RTLD_DEFAULT, \"own\", \"NO_SUCH_VERSION\") == 0 && says(\"own, version NO_SUCH_VERSION\"));
        FACT(dlvsym(RTLD_NEXT, \"drand48\", \"NO_SUCH_VERSION\") == 0 && says(\"drand48\"));
        FACT(dladdr((char *)own + 1, &info) && strcmp(info.dli_sname, \"own\") == 0);
        FACT(info.dli_saddr == (void *)own && info.dli_fname && info.dli_fbase);
        FACT(dladdr(&keep_local, &other) && other.dli_fbase == info.dli_fbase);
        FACT(strcmp(other.dli_fname, info.dli_fname) == 0 && strcmp(other.dli_sname, \"keep_local\") == 0);
        FACT(dladdr((void *)keep_local, &other) && other.dli_sname == 0 && other.dli_saddr == 0);
        FACT(strcmp(other.dli_fname, info.dli_fname) == 0);
        FACT(dladdr((void *)lower, &other) && strcmp(other.dli_sname, \"lower\") == 0);
        FACT(strcmp(other.dli_fname, info.dli_fname) != 0);
        FACT(dladdr(dlsym(RTLD_DEFAULT, \"drand48\"), &other) && strcmp(other.dli_sname, \"drand48\") == 0);
        FACT(strstr(other.dli_fname, \"libc\") != 0);
        void *heap = malloc(1 << 20);
        FACT(dladdr(heap, &other) == 0);
        free(heap);
        FACT(dl_iterate_phdr(visit, (void *)facts_address));
        if (math) dlclose(math);
        dlclose(program);
        return facts | 1L << bit;
    }
    ";

/// The number of facts, and one bit more.
const ALL_FACTS: i64 = (1 << 33) - 1;

const LOWER: &str = "long shared(void) { return 2; } long lower(void) { return 20; }";

fn object(source: &str) -> Option<Vec<u8>> {
    let source = source.replace("facts_address", "own");
    gcc(&["-O1", "-fPIC", "-fno-builtin", "-Wno-pointer-arith"], &format!("{COMMON}{source}"))
}

/// A dylib `upper` that links against `lower` and the process.
fn two_dylibs(jit: &Jit) -> (JitDylib, JitDylib) {
    let (upper, lower) = (jit.create_dylib("upper").unwrap(), jit.create_dylib("lower").unwrap());
    let order = [(lower.clone(), Visibility::ExportedOnly), (jit.process_dylib().clone(), Visibility::ExportedOnly)];
    upper.set_link_order(&order).unwrap();
    (upper, lower)
}

/// The facts of a program that links the objects as shared libraries.
fn native_facts(upper: &[u8], lower: &[u8]) -> Option<i64> {
    let dir = PrivateDir::new();
    let main = "#include <stdio.h>\nlong facts(void); int main(void) { printf(\"%ld\\n\", facts()); return 0; }";
    let (main, program) = (dir.write("main.c", main), dir.path("program"));
    dir.write("upper.o", upper);
    dir.write("lower.o", lower);
    let run = |mut command: Command| {
        let run = command.current_dir(dir.path("")).output().unwrap();
        assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    let gcc = |args: &[&str]| {
        let mut gcc = require("gcc")?;
        gcc.args(args);
        run(gcc);
        Some(())
    };
    gcc(&["-shared", "-o", "liblower.so", "lower.o"])?;
    gcc(&["-shared", "-Wl,-rpath,$ORIGIN", "-o", "libupper.so", "upper.o", "./liblower.so"])?;
    gcc(&["-Wl,-rpath,$ORIGIN", "-o", "program", main.to_str().unwrap(), "./libupper.so", "./liblower.so"])?;
    Some(run(Command::new(program)).trim().parse().unwrap())
}

/// Symptom: the loader answered for the window: it found no linked symbol, and `RTLD_NEXT` found nothing at all.
#[test]
fn linked_code_gets_the_answers_of_a_shared_library() {
    let (Some(upper_object), Some(lower_object)) = (object(UPPER), object(LOWER)) else { return };
    let Some(native) = native_facts(&upper_object, &lower_object) else { return };
    assert_eq!(format!("{native:#b}"), format!("{ALL_FACTS:#b}"), "the facts of a native program");
    let jit = new_jit();
    let (upper, lower) = two_dylibs(&jit);
    let _upper = add(&jit, &upper, "upper.o", &upper_object);
    let _lower = add(&jit, &lower, "lower.o", &lower_object);
    assert_eq!(format!("{:#b}", long_in(&jit, &upper, "facts")), format!("{native:#b}"));
}

#[test]
fn dladdr_names_the_dylib_with_a_prefix() {
    let source = "long own(void) { return 1; }
        long test(void) {
            Dl_info info;
            return dladdr((void *)own, &info) && strcmp(info.dli_fname, \"jittison:upper\") == 0;
        }";
    let Some(object) = object(source) else { return };
    let jit = new_jit();
    let (upper, _lower) = two_dylibs(&jit);
    let _tracker = add(&jit, &upper, "object.o", &object);
    assert_eq!(long_in(&jit, &upper, "test"), 1);
}

const ASKING: &str = "
    typedef long function(void);
    static function *found;
    long find(void) { found = (function *)dlsym(RTLD_DEFAULT, \"target\"); return found != 0; }
    long call(void) { return found(); }";

#[test]
fn an_address_stays_valid_as_long_as_the_object_that_asked_for_it() {
    let target = "static long value = 6; long target(void) { return value; }";
    let (Some(asking), Some(target)) = (object(ASKING), object(target)) else { return };
    let jit = new_jit();
    let asking_tracker = add(&jit, jit.main_dylib(), "asking.o", &asking);
    assert_eq!(long(&jit, "find"), 0);
    let target_tracker = add(&jit, jit.main_dylib(), "target.o", &target);
    assert_eq!((long(&jit, "find"), long(&jit, "find"), long(&jit, "call")), (1, 1, 6));
    let removal = target_tracker.remove().unwrap();
    assert!(!removal.is_complete(), "the object that asked depends on it");
    assert_eq!(long(&jit, "call"), 6);
    let find = function::<extern "C" fn() -> i64>(&jit, "find");
    let asking_removal = asking_tracker.remove().unwrap();
    assert_eq!(find.call(), 0, "the name is removed");
    drop(find);
    assert!(asking_removal.is_complete() && removal.is_complete());
    assert_eq!(held(&jit).0, 0);
}

/// The object that is found has an initialiser, and is linked by the search.
#[test]
fn what_dlsym_finds_is_linked_and_initialised_at_any_time_at_which_code_runs() {
    let asking = |function: &str, attribute: &str, target: &str| {
        format!(
            "{attribute} void {function}(void) {{
                long (*found)(void) = dlsym(RTLD_DEFAULT, \"{target}\");
                record(found ? found() : -1);
            }}"
        )
    };
    let source = format!(
        "void record(long); int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern void *__dso_handle;
         {}{}{}{}
         static void at_thread_end(void *argument) {{ thread(); }}
         long start(void) {{
             atexit(handler);
             return __cxa_thread_atexit_impl(at_thread_end, 0, &__dso_handle);
         }}",
        asking("begin", "static __attribute__((constructor))", "target1"),
        asking("thread", "static", "target2"),
        asking("handler", "static", "target3"),
        asking("end", "static __attribute__((destructor))", "target4"),
    );
    let target = |number: i64| {
        format!(
            "void record(long); static long value; long target{number}(void) {{ return value + {number}; }}
             static __attribute__((constructor)) void begin(void) {{ value = 10; record(100 + {number}); }}"
        )
    };
    let Some(asking) = object(&source) else { return };
    let jit = new_jit();
    install(&jit, jit.main_dylib());
    let dylib = jit.create_dylib("asking").unwrap();
    install(&jit, &dylib);
    let order = [jit.main_dylib(), jit.process_dylib()].map(|dylib| (dylib.clone(), Visibility::ExportedOnly));
    dylib.set_link_order(&order).unwrap();
    let tracker = add(&jit, &dylib, "asking.o", &asking);
    let targets: Vec<_> = (1..=4)
        .filter_map(|number| Some(add(&jit, jit.main_dylib(), &format!("target{number}.o"), &object(&target(number))?)))
        .collect();
    take();
    assert_eq!(long_in(&jit, &dylib, "start"), 0);
    assert_eq!(take(), [101, 11], "in an initialiser");
    let removal = tracker.remove().unwrap();
    assert!(removal.is_complete(), "this thread runs its pending destructors");
    assert_eq!(take(), [102, 12, 103, 13, 104, 14], "in a destructor of the thread, a handler and a finaliser");
    for target in targets {
        assert!(target.remove().unwrap().is_complete());
    }
    assert_eq!(held(&jit).0, 0);
}

#[test]
fn a_definition_that_cannot_be_linked_is_an_error_with_its_cause() {
    let (Some(asking), Some(target)) = (
        object(&format!("{ASKING} const char *why(void) {{ return dlerror(); }}")),
        object("extern long absent(void); long target(void) { return absent(); }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let _asking = add(&jit, jit.main_dylib(), "asking.o", &asking);
    let _target = add(&jit, jit.main_dylib(), "target.o", &target);
    assert_eq!(long(&jit, "find"), 0);
    let why = function::<extern "C" fn() -> *const std::ffi::c_char>(&jit, "why").call();
    // SAFETY: `dlerror` returns a C string that is valid until the next call of the loader in this thread.
    let why = unsafe { std::ffi::CStr::from_ptr(why) }.to_str().unwrap();
    assert!(why.contains("undefined symbol: target (") && why.contains("`absent`"), "{why}");
}

#[test]
fn a_dlsym_that_another_object_defines_is_used_as_it_is() {
    let (Some(asking), Some(own)) = (
        object("long test(void) { return (long)dlsym(RTLD_DEFAULT, \"test\"); }"),
        gcc(&["-O1", "-fPIC"], "void *dlsym(void *handle, const char *name) { return (void *)17; }"),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&asking, &own]);
    assert_eq!(long(&jit, "test"), 17);
}

#[test]
fn a_forked_child_finds_what_its_parent_finds() {
    own_process!();
    let source = "long target(void) { return 5; }
        long test(void) {
            pid_t child = fork();
            if (child == 0) {
                long (*found)(void) = dlsym(RTLD_DEFAULT, \"target\");
                _exit(found && dlsym(RTLD_NEXT, \"drand48\") == (void *)drand48 ? found() : 1);
            }
            int status = 0;
            waitpid(child, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }";
    let Some(object) = object(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 5);
}

#[test]
fn after_its_dylib_was_removed_code_still_finds_the_process() {
    let source = "long test(void) { return dlsym(RTLD_DEFAULT, \"drand48\") == (void *)drand48; }";
    let Some(object) = object(source) else { return };
    let jit = new_jit();
    let dylib = jit.create_dylib("removed").unwrap();
    let tracker = add(&jit, &dylib, "object.o", &object);
    let test = try_function::<extern "C" fn() -> i64>(&jit, &dylib, "test").unwrap();
    assert_eq!(test.call(), 1);
    assert_eq!(jit.session().remove_dylib(&dylib).unwrap().len(), 1);
    assert_eq!(test.call(), 1);
    drop((jit, tracker));
    assert_eq!(test.call(), 1, "the session has ended");
}

#[test]
fn a_version_of_a_patched_function_finds_the_next_one_after_the_patched_dylib() {
    own_process!();
    let source =
        "long patched(void) { long (*next)(void) = dlsym(RTLD_NEXT, \"patched\"); return next ? next() + 1 : -1; }";
    let (Some(version), Some(lower_object)) = (object(source), object("long patched(void) { return 50; }")) else {
        return;
    };
    let jit = new_jit();
    let (upper, lower) = two_dylibs(&jit);
    let _lower = add(&jit, &lower, "lower.o", &lower_object);
    let functions = jit.patchable(&upper, &["patched"]).unwrap();
    let mut patch = functions.patch();
    patch.add_object("version.o", version).unwrap();
    // SAFETY: the object may run.
    let prepared = unsafe { patch.link() }.unwrap();
    assert!(prepared.commit().unwrap().retired.is_empty());
    assert_eq!(long_in(&jit, &upper, "patched"), 51);
}

#[test]
fn threads_that_ask_while_what_they_find_is_removed_and_added_again_never_call_freed_code() {
    let target = "long target(void) { return 6; }";
    let asking = format!(
        "{ASKING} long once(void) {{ function *target = dlsym(RTLD_DEFAULT, \"target\"); return target ? target() : 6; }}"
    );
    let (Some(asking), Some(target)) = (object(&asking), object(target)) else { return };
    let jit = new_jit();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (jit, asking, target) = (&jit, &asking, &target);
            scope.spawn(move || {
                for round in 0..100 {
                    let dylib = jit.create_dylib(&format!("asking {number}")).unwrap();
                    let order =
                        [jit.main_dylib(), jit.process_dylib()].map(|dylib| (dylib.clone(), Visibility::ExportedOnly));
                    dylib.set_link_order(&order).unwrap();
                    let _asking = add(jit, &dylib, "asking.o", asking);
                    let removed = if number == 0 { Some(add(jit, jit.main_dylib(), "target.o", target)) } else { None };
                    let once = try_function::<extern "C" fn() -> i64>(jit, &dylib, "once").unwrap();
                    assert_eq!((once.call(), once.call()), (6, 6), "round {round}");
                    drop(once);
                    removed.map(|removed| removed.remove().unwrap());
                    jit.session().remove_dylib(&dylib).unwrap();
                }
            });
        }
    });
    assert_eq!(held(&jit).0, 0);
}

/// The library of the loader that a host opens for linked code comes after what the process has.
#[test]
fn libraries_that_the_session_opens_are_searched_when_the_process_lacks_a_name() {
    let dir = PrivateDir::new();
    let args = ["-x", "c", "-shared", "-fPIC", "-nostdlib", "-o", OUTPUT, INPUT];
    let Some(library) = build("gcc", b"long name_of_session_library(void) { return 3; }", &args) else { return };
    let path = dir.write("libsession.so", library);
    let source = "long test(void) {
        long (*found)(void) = dlsym(RTLD_DEFAULT, \"name_of_session_library\");
        return found && dlsym(RTLD_NEXT, \"name_of_session_library\") == (void *)found ? found() : -1;
    }";
    let Some(object) = object(source) else { return };
    let jit = Jit::builder().library(path.to_str().unwrap()).build().unwrap();
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(long(&jit, "test"), 3);
}

#[test]
fn a_definition_of_the_embedder_comes_before_that_of_the_process() {
    let source = "long test(void) { return (long)dlsym(RTLD_DEFAULT, \"drand48\"); }";
    let Some(object) = object(source) else { return };
    let jit = new_jit();
    define_absolute(jit.process_dylib(), "drand48", 0x1234);
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(long(&jit, "test"), 0x1234);
}

/// Symptom: the destructor stayed registered with the C library after its code was freed.
#[test]
fn a_handler_that_is_registered_through_dlsym_belongs_to_its_object() {
    let source = "extern void *__dso_handle; void record(long);
        static void end(void *argument) { record(8); }
        long test(void) {
            int (*atexit_of)(void (*)(void *), void *, void *) = dlsym(RTLD_DEFAULT, \"__cxa_atexit\");
            return atexit_of(end, 0, &__dso_handle);
        }";
    let Some(object) = object(source) else { return };
    let jit = crate::recorder::recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(long(&jit, "test"), 0);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [8]);
}

/// Counts the bytes of the writable segments of the list of the loader around a variable. Reads all of them.
const COLLECTOR: &str = "
    #define _GNU_SOURCE
    #include <link.h>
    long variable = 5;
    static volatile long sum;
    static int visit(struct dl_phdr_info *info, size_t size, void *found) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *header = &info->dlpi_phdr[i];
            unsigned long start = info->dlpi_addr + header->p_vaddr;
            if (header->p_type == PT_LOAD && header->p_flags & PF_W && (unsigned long)&variable - start < header->p_memsz) {
                for (unsigned long at = 0; at < header->p_memsz; at += 4096) sum += *(char *)(start + at);
                *(long *)found += header->p_memsz;
            }
        }
        return 0;
    }
    long writable_bytes(void) { long found = 0; dl_iterate_phdr(visit, &found); return found; }
    ";

// Seen red: no writable segment had the variable, so Boehm's collector freed blocks to which only linked data pointed.
#[test]
fn a_collector_finds_linked_data_in_the_writable_segments_of_the_loader() {
    let Some(object) = c(COLLECTOR) else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let before = long(&jit, "writable_bytes");
    assert!(before > 0 && before < 64 << 20, "{before:#x} bytes: only what is open");
    let Some(large) = c("char zeroes[16 << 20] = { 1 }; static char own[9 << 20]; char *pointer(void) { return own; }")
    else {
        return;
    };
    let more = add(&jit, jit.main_dylib(), "more.o", &large);
    assert!(!jit.address_of(jit.main_dylib(), "pointer").unwrap().is_null());
    let with_more = long(&jit, "writable_bytes");
    assert!(with_more >= before + (9 << 20), "{before:#x}, then {with_more:#x}");
    assert!(more.remove().unwrap().is_complete());
    jit.release_free();
    let after = long(&jit, "writable_bytes");
    assert!(after > 0 && after < with_more, "{with_more:#x}, then {after:#x}");
}

#[test]
fn an_object_with_the_runtime_of_d_is_refused_because_of_its_collector() {
    let Some(object) = c("void _d_dso_registry(void *); long test(void) { _d_dso_registry(0); return 1; }") else {
        return;
    };
    assert_says(&refused(&object, "test"), &["bad.o", "garbage collector of D", "`_d_dso_registry`", "-betterC"]);
}
