//! C++ that several objects define at the same time: inline entities with a value of their own in each object.
//!
//! The program breaks the one-definition rule, so that the output shows which definition the linker chose. The compiler
//! sees one object at a time.

use std::fmt::Write as _;

use crate::extra::{Extra, Inline};
use crate::program::Object;

/// The definitions, and the statements of `run`.
pub fn write(object: &Object) -> (String, String) {
    let id = object.id;
    let value = 0x100 * (id as u32 + 1);
    let mut file = String::from("#include <typeinfo>\n");
    let _ = writeln!(
        file,
        "static unsigned made(const char *text) {{ say(text, {value:#x}); return {value:#x}; }}\n\
         struct named {{ const char *text; named(const char *start, const char *end) : text(end) {{ made(start); }} \
         ~named() {{ say(text, {value:#x}); }} }};"
    );
    let mut code = String::new();
    for extra in &object.extras {
        if let Extra::Inline(inline) = extra {
            write_inline(&mut file, &mut code, *inline, id, value);
        }
    }
    (file, code)
}

fn write_inline(file: &mut String, code: &mut String, inline: Inline, id: usize, value: u32) {
    let _ = match inline {
        Inline::Function => {
            let _ = writeln!(file, "inline unsigned cpp_function() {{ return {value:#x}; }}");
            writeln!(
                code,
                "{{ unsigned (*volatile pointer)() = cpp_function; say(\"{id} cpp_function call\", pointer()); \
                 say_address(\"{id} cpp_function address\", (void *)pointer); }}"
            )
        }
        Inline::StaticLocal => {
            let _ = writeln!(
                file,
                "inline unsigned &cpp_local() {{ static unsigned counter = made(\"{id} cpp_local made\"); \
                 return counter; }}"
            );
            writeln!(code, "say(\"{id} cpp_local count\", ++cpp_local());")
        }
        Inline::Variable => {
            let _ = writeln!(file, "inline unsigned cpp_variable = made(\"{id} cpp_variable made\");");
            writeln!(
                code,
                "say(\"{id} cpp_variable count\", ++cpp_variable); \
                 say_address(\"{id} cpp_variable address\", &cpp_variable);"
            )
        }
        Inline::ThreadLocal => {
            let _ = writeln!(file, "inline thread_local unsigned cpp_thread = made(\"{id} cpp_thread made\");");
            writeln!(code, "say(\"{id} cpp_thread count\", ++cpp_thread);")
        }
        Inline::TemplateMember => {
            let _ = writeln!(
                file,
                "template <class T> struct cpp_template {{ static unsigned member; }};\n\
                 template <class T> unsigned cpp_template<T>::member = {value:#x};"
            );
            writeln!(
                code,
                "say(\"{id} cpp_template count\", ++cpp_template<int>::member); \
                 say_address(\"{id} cpp_template address\", &cpp_template<int>::member);"
            )
        }
        Inline::Virtual => {
            let _ = writeln!(
                file,
                "struct cpp_base {{ virtual unsigned get() {{ return {value:#x}; }} virtual ~cpp_base() {{}} }};\n\
                 static cpp_base *volatile cpp_object = new cpp_base;"
            );
            writeln!(
                code,
                "say(\"{id} cpp_base get\", cpp_object->get()); \
                 say_address(\"{id} cpp_base type\", (void *)&typeid(*cpp_object));"
            )
        }
        Inline::Exception => {
            let _ = writeln!(
                file,
                "struct cpp_error {{ unsigned value; virtual ~cpp_error() {{}} }};\n\
                 inline void cpp_throw() {{ cpp_error error; error.value = {value:#x}; throw error; }}"
            );
            writeln!(
                code,
                "{{ void (*volatile thrower)() = cpp_throw; try {{ thrower(); }} catch (cpp_error &error) \
                 {{ say(\"{id} cpp_throw caught\", error.value); }} }}"
            )
        }
        Inline::Static => {
            let _ = writeln!(file, "static named cpp_static(\"{id} lists static made\", \"{id} lists static ended\");");
            Ok(())
        }
        Inline::SharedObject => {
            let _ = writeln!(
                file,
                "inline named cpp_object_once(\"{id} lists inline made\", \"{id} lists inline ended\");"
            );
            Ok(())
        }
    };
}
