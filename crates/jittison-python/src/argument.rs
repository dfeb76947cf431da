//! [`Parameter`]: what a parameter that is a pointer takes. Objects with a buffer, such as arrays of NumPy, are passed without
//! a copy, after a check of their type.
//!
//! | argument | passed as |
//! |---|---|
//! | an object of ctypes or cffi, None, a number | what the declared type makes of it |
//! | any other object with a buffer | the address of its memory |

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer::Buffer;

/// What a parameter takes that is a pointer.
#[derive(FromPyObject)]
pub(crate) struct Parameter {
    /// As the program writes it, for messages.
    declared: String,
    /// What the items of a buffer are: "i" signed, "u" unsigned, "f" floating, "?" truth values, "s" a struct, "*" anything.
    items: String,
    /// The size of an item in bytes.
    item_size: usize,
    /// Whether the function only reads.
    is_const: bool,
    /// The classes whose objects are passed as they are.
    native: Py<PyAny>,
    /// Converts an argument without a buffer. None leaves it to the callable.
    convert: Option<Py<PyAny>>,
    /// Makes an argument of an address. None: the number itself.
    from_address: Option<Py<PyAny>>,
}

impl Parameter {
    /// Converts the argument at `index`. A buffer that it takes is added to `buffers`.
    fn convert<'py>(
        &self,
        function: &str,
        index: usize,
        argument: Bound<'py, PyAny>,
        buffers: &mut Vec<Buffer>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = argument.py();
        if argument.is_none() || argument.is_instance(self.native.bind(py))? || !Buffer::is_supported_by(&argument) {
            return match &self.convert {
                Some(convert) => convert.bind(py).call1((argument,)),
                None => Ok(argument),
            };
        }
        let buffer = Buffer::of(&argument)?;
        if let Some(problem) = self.problem(&buffer) {
            let number = index + 1;
            return Err(PyTypeError::new_err(format!("argument {number} of `{function}`: {problem}")));
        }
        let address = buffer.address().into_pyobject(py)?.into_any();
        buffers.push(buffer);
        match &self.from_address {
            Some(make) => make.bind(py).call1((address,)),
            None => Ok(address),
        }
    }

    /// Why the function cannot take the buffer.
    fn problem(&self, buffer: &Buffer) -> Option<String> {
        let Parameter { declared, items, item_size, .. } = self;
        if buffer.is_read_only() && !self.is_const {
            return Some(format!(
                "the buffer is read-only, but the parameter is `{declared}`; declare it const if it is"
            ));
        }
        let is_same = items == "*" || (buffer.item_size() == *item_size && self.takes(kind_of(buffer.format())));
        let (format, size) = (buffer.format(), buffer.item_size());
        (!is_same)
            .then(|| format!("the buffer has items {format:?} of {size} bytes, but the parameter is `{declared}`"))
    }

    /// Whether items of a kind are those of the parameter. Single bytes have no sign in practice.
    fn takes(&self, kind: char) -> bool {
        let is_byte = self.item_size == 1 && self.items != "?";
        is_byte || self.items == "s" || self.items.starts_with(kind)
    }
}

/// The kind of a format of the module `struct`: that of [`Parameter::items`], or 'x' for what has another layout.
fn kind_of(format: &str) -> char {
    let format = format.strip_prefix(['@', '=', '<', '^']).unwrap_or(format);
    match format {
        "b" | "h" | "i" | "l" | "q" | "n" => 'i',
        "B" | "H" | "I" | "L" | "Q" | "N" | "P" | "c" => 'u',
        "e" | "f" | "d" | "g" => 'f',
        "Zf" | "Zd" | "Zg" => 'c',
        "?" => '?',
        _ => 'x',
    }
}

/// Converts the arguments of a call.
pub(crate) fn convert_all<'py>(
    function: &str,
    parameters: &[Option<Parameter>],
    arguments: &Bound<'py, PyTuple>,
    buffers: &mut Vec<Buffer>,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut converted = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.iter().enumerate() {
        converted.push(match parameters.get(index) {
            Some(Some(parameter)) => parameter.convert(function, index, argument, buffers)?,
            _ => argument,
        });
    }
    PyTuple::new(arguments.py(), converted)
}
