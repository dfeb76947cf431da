//! [`PassedArguments`] and [`PassedResult`]: what a call between the processes passes, each as one run of bytes.
//!
//! A call is the message whose time users see, and the only one with many numbers, so its numbers have fixed places. All are
//! little-endian. Registers behind the last one that is not zero are left out.
//!
//! | bytes of arguments | content |
//! |---|---|
//! | 2 | how many integer registers follow, and how many vector registers; 8 at most each |
//! | 2 | how many words of the stack follow |
//! | 4 | the size of a result that is returned in memory, or 0 |
//! | 8, 16, 8 for each | the integer registers, the vector registers, the words of the stack from the lowest address |
//!
//! | bytes of a result | content |
//! |---|---|
//! | 1 | how many vector registers follow, 4 at most |
//! | 16 | both integer registers |
//! | 16 for each | the vector registers |
//! | the rest | the result in memory |

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// What a caller passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PassedArguments {
    pub(crate) integers: [u64; 8],
    pub(crate) vectors: [u128; 8],
    /// From the lowest address.
    pub(crate) stack: Vec<u64>,
    /// The size of a result that is returned in memory, or 0.
    pub(crate) result_bytes: u32,
}

/// What a function returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PassedResult {
    pub(crate) integers: [u64; 2],
    pub(crate) vectors: [u128; 4],
    /// A result that is returned in memory, or nothing.
    pub(crate) memory: Vec<u8>,
}

/// The bytes of most calls, without an allocation.
type Bytes = SmallVec<[u8; INLINE]>;
const INLINE: usize = 256;

/// A value with bytes of its own.
trait AsBytes: Sized {
    const NAME: &'static str;

    fn bytes(&self) -> Bytes;

    /// `None` if the bytes are not such a value.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl AsBytes for PassedArguments {
    const NAME: &'static str = "the arguments of a call";

    fn bytes(&self) -> Bytes {
        let (integers, vectors) = (without_zeros(&self.integers), without_zeros(&self.vectors));
        let mut bytes = zeroes(8 + integers.len() * 8 + vectors.len() * 16 + self.stack.len() * 8);
        let rest = put(&mut bytes, [[integers.len() as u8, vectors.len() as u8]]);
        let rest = put(rest, [(self.stack.len() as u16).to_le_bytes()]);
        let rest = put(rest, [self.result_bytes.to_le_bytes()]);
        let rest = put(rest, integers.iter().map(|integer| integer.to_le_bytes()));
        let rest = put(rest, vectors.iter().map(|vector| vector.to_le_bytes()));
        put(rest, self.stack.iter().map(|word| word.to_le_bytes()));
        bytes
    }

    fn read(mut bytes: &[u8]) -> Option<PassedArguments> {
        let [integers, vectors] = take(&mut bytes)?;
        let words = u16::from_le_bytes(take(&mut bytes)?);
        let mut arguments =
            PassedArguments { result_bytes: u32::from_le_bytes(take(&mut bytes)?), ..Default::default() };
        for integer in arguments.integers.get_mut(..integers.into())? {
            *integer = u64::from_le_bytes(take(&mut bytes)?);
        }
        for vector in arguments.vectors.get_mut(..vectors.into())? {
            *vector = u128::from_le_bytes(take(&mut bytes)?);
        }
        if bytes.len() != usize::from(words) * 8 {
            return None;
        }
        let (words, _) = bytes.as_chunks();
        arguments.stack = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Some(arguments)
    }
}

impl AsBytes for PassedResult {
    const NAME: &'static str = "the result of a call";

    fn bytes(&self) -> Bytes {
        let vectors = without_zeros(&self.vectors);
        let mut bytes = zeroes(1 + 16 + vectors.len() * 16 + self.memory.len());
        let rest = put(&mut bytes, [[vectors.len() as u8]]);
        let rest = put(rest, self.integers.map(u64::to_le_bytes));
        let rest = put(rest, vectors.iter().map(|vector| vector.to_le_bytes()));
        rest.copy_from_slice(&self.memory);
        bytes
    }

    fn read(mut bytes: &[u8]) -> Option<PassedResult> {
        let [vectors] = take(&mut bytes)?;
        let mut result = PassedResult::default();
        for integer in &mut result.integers {
            *integer = u64::from_le_bytes(take(&mut bytes)?);
        }
        for vector in result.vectors.get_mut(..vectors.into())? {
            *vector = u128::from_le_bytes(take(&mut bytes)?);
        }
        result.memory = bytes.to_vec();
        Some(result)
    }
}

fn zeroes(count: usize) -> Bytes {
    // `SmallVec::from_elem` stores them one by one.
    if count <= INLINE { Bytes::from_buf_and_len([0; INLINE], count) } else { vec![0; count].into() }
}

/// Stores values one behind the other. Returns the bytes behind them.
fn put<const N: usize>(
    bytes: &mut [u8],
    values: impl IntoIterator<Item = [u8; N], IntoIter: ExactSizeIterator>,
) -> &mut [u8] {
    let values = values.into_iter();
    let (places, rest) = bytes.split_at_mut(values.len() * N);
    places.as_chunks_mut().0.iter_mut().zip(values).for_each(|(place, value)| *place = value);
    rest
}

/// The first bytes, which are left out of `bytes` then.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn without_zeros<T: PartialEq + Default>(registers: &[T]) -> &[T] {
    let used = registers.iter().rposition(|register| *register != T::default()).map_or(0, |last| last + 1);
    &registers[..used]
}

fn serialize<S: Serializer>(value: &impl AsBytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(&value.bytes())
}

struct BytesVisitor<T>(PhantomData<T>);

impl<T: AsBytes> Visitor<'_> for BytesVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
        T::read(bytes).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Bytes(bytes), &self))
    }
}

impl Serialize for PassedArguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PassedArguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PassedArguments, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(PhantomData))
    }
}

impl Serialize for PassedResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PassedResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PassedResult, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(PhantomData))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_results_are_read_as_they_were_written() {
        let mut arguments = PassedArguments { stack: vec![4, u64::MAX], result_bytes: 24, ..Default::default() };
        arguments.integers[..3].copy_from_slice(&[1, 0, 3]);
        arguments.vectors[1] = u128::MAX - 1;
        let full = PassedArguments { integers: [1; 8], vectors: [2; 8], ..Default::default() };
        for arguments in [PassedArguments::default(), arguments, full] {
            assert_eq!(PassedArguments::read(&arguments.bytes()), Some(arguments));
        }
        let result = PassedResult { integers: [7, u64::MAX], vectors: [0, 9, 0, 0], memory: vec![1, 2, 3] };
        for result in [PassedResult::default(), result, PassedResult { vectors: [1; 4], ..Default::default() }] {
            assert_eq!(PassedResult::read(&result.bytes()), Some(result));
        }
    }

    #[test]
    fn registers_that_are_zero_take_no_bytes() {
        let mut arguments = PassedArguments::default();
        assert_eq!(arguments.bytes().len(), 8);
        arguments.integers[1] = 1;
        assert_eq!(arguments.bytes().len(), 8 + 16);
        assert_eq!(PassedResult::default().bytes().len(), 17);
    }

    #[test]
    fn bytes_with_too_many_registers_or_another_length_are_refused() {
        let head = |integers, vectors, words: u16| [&[integers, vectors][..], &words.to_le_bytes(), &[0; 4]].concat();
        let with = |head: Vec<u8>, rest: usize| PassedArguments::read(&[head, vec![1; rest]].concat());
        assert!(with(head(8, 8, 1), 8 * 8 + 8 * 16 + 8).is_some());
        assert_eq!(with(head(9, 0, 0), 9 * 8), None);
        assert_eq!(with(head(0, 9, 0), 9 * 16), None);
        for (words, rest) in [(0, 1), (1, 7), (1, 9), (2, 8), (u16::MAX, 8)] {
            assert_eq!(with(head(0, 0, words), rest), None, "{words} words in {rest} bytes");
        }
        assert_eq!(PassedArguments::read(&[0; 7]), None);
        assert_eq!(PassedResult::read(&[[5].as_slice(), &[0; 16 + 5 * 16]].concat()), None);
        assert_eq!(PassedResult::read(&[[1].as_slice(), &[0; 16 + 15]].concat()), None);
    }
}
