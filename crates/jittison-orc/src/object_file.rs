//! Object files that LLVM hands over (`LLVMMemoryBufferRef`).

use std::ffi::CString;

use jittison::Error;
use jittison::Jit;
use jittison::session::MaterializationResponsibility;

use crate::llvm::{Opaque, llvm};

/// A memory buffer of LLVM, which is disposed of with it.
pub(crate) struct ObjectFile(Opaque);

// SAFETY: O4 - any thread may use a buffer that it owns.
unsafe impl Send for ObjectFile {}

impl ObjectFile {
    /// # Safety
    /// O2: the buffer is given away.
    pub(crate) unsafe fn from_raw(buffer: Opaque) -> Result<ObjectFile, Error> {
        if buffer.is_null() { Err(Error::other("the object buffer is null")) } else { Ok(ObjectFile(buffer)) }
    }

    /// Gives the buffer away.
    pub(crate) fn into_raw(self) -> Opaque {
        let buffer = self.0;
        std::mem::forget(self);
        buffer
    }

    /// A copy of its bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Error> {
        let llvm = llvm()?;
        let (start, size) = (llvm.LLVMGetBufferStart()?, llvm.LLVMGetBufferSize()?);
        // SAFETY: O4 - the bytes stay as long as the buffer.
        Ok(unsafe { std::slice::from_raw_parts(start(self.0), size(self.0)) }.to_vec())
    }

    /// A buffer with the same bytes and another name, which dumps use.
    pub(crate) fn renamed(self, name: &str) -> Result<ObjectFile, Error> {
        let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
        let copy = llvm()?.LLVMCreateMemoryBufferWithMemoryRangeCopy()?;
        let bytes = self.bytes()?;
        // SAFETY: O4 - the function copies both.
        unsafe { ObjectFile::from_raw(copy(bytes.as_ptr().cast(), bytes.len(), name.as_ptr())) }
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        if let Ok(dispose) = llvm().and_then(|llvm| llvm.LLVMDisposeMemoryBuffer()) {
            // SAFETY: O2, O4 - it is owned, and disposed of once.
            unsafe { dispose(self.0) };
        }
    }
}

/// Links an object for symbols that are claimed already. Its COMDAT groups become plain groups: which definition of a weak
/// name is used was decided when the names were claimed.
pub(crate) fn emit(jit: &Jit, responsibility: MaterializationResponsibility, name: &str, mut bytes: Vec<u8>) {
    make_groups_plain(&mut bytes);
    jit.layer().emit_object(responsibility, name, bytes.into());
}

const SHT_GROUP: u64 = 17;
const GRP_COMDAT: u8 = 1;

/// Clears the COMDAT flag of each section group of a 64-bit ELF file. Leaves bytes that are no such file as they are: the link
/// says what is wrong with them.
fn make_groups_plain(bytes: &mut [u8]) {
    let number = |bytes: &[u8], at: u64, width: usize| {
        let at = usize::try_from(at).ok()?;
        let field = bytes.get(at..at.checked_add(width)?)?;
        Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return;
    }
    let header = |at| number(bytes, at, 8).zip(number(bytes, 0x3a, 2)).zip(number(bytes, 0x3c, 2));
    let Some(((table, entry_size), mut count)) = header(0x28) else { return };
    if count == 0 {
        // The first section has the count of a long table.
        count = number(bytes, table.saturating_add(0x20), 8).unwrap_or(0);
    }
    for index in 0..count {
        let Some(section) = index.checked_mul(entry_size).and_then(|offset| offset.checked_add(table)) else { return };
        let Some(kind) = number(bytes, section.saturating_add(4), 4) else { return };
        let start = number(bytes, section.saturating_add(0x18), 8).and_then(|start| usize::try_from(start).ok());
        if kind == SHT_GROUP
            && let Some(flags) = start.and_then(|start| bytes.get_mut(start))
        {
            *flags &= !GRP_COMDAT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_object_stay_as_they_are() {
        for bytes in
            [&b""[..], b"\x7fELF\x02\x01", &[0xff; 100], &[b"\x7fELF\x02\x01".as_slice(), &[0xff; 58]].concat()]
        {
            let mut changed = bytes.to_vec();
            make_groups_plain(&mut changed);
            assert_eq!(changed, bytes);
        }
    }
}
