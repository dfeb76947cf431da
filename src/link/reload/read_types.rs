//! [`read_types`]: reads the types of an object by the language of each of its units.

use std::cell::Cell;

use gimli::constants as dw;

use crate::link::reload::c_types::{CTypes, ROOM};
use crate::link::reload::debug_info::{Units, is_readable};
use crate::link::reload::object_file::ObjectFile;
use crate::link::reload::rust_types::RustTypes;
use crate::link::reload::types::Types;

/// Reads the debug information of an object. If it cannot be read, what was read before.
pub(super) fn read_types(file: &ObjectFile<'_>) -> Types {
    let mut types = Types::default();
    let mut infos = file.sections.iter().filter(|section| section.name == ".debug_info");
    if infos.any(is_readable) {
        Units::open(file).for_each(|language, tree| match language {
            dw::DW_LANG_Rust => RustTypes { file, tree }.record(&mut types),
            _ if C_AND_CPP.contains(&language) => CTypes { file, tree, room: Cell::new(ROOM) }.record(&mut types),
            _ => {}
        });
    }
    types
}

const C_AND_CPP: [gimli::DwLang; 12] = [
    dw::DW_LANG_C89,
    dw::DW_LANG_C,
    dw::DW_LANG_C99,
    dw::DW_LANG_C11,
    dw::DW_LANG_C17,
    dw::DW_LANG_C_plus_plus,
    dw::DW_LANG_C_plus_plus_03,
    dw::DW_LANG_C_plus_plus_11,
    dw::DW_LANG_C_plus_plus_14,
    dw::DW_LANG_C_plus_plus_17,
    dw::DW_LANG_C_plus_plus_20,
    dw::DW_LANG_ObjC,
];
