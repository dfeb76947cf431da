//! [`ChunkList`]: a list of chunks, for lists that threads change under a lock.
//!
//! No operation moves more than one chunk of elements: growth adds a chunk, and [`append`](ChunkList::append) moves the chunks of
//! the other list, which are pointers. A short list is added element by element, so that chunks stay full.

use std::{iter, vec};

pub(crate) struct ChunkList<T> {
    /// None is empty.
    chunks: Vec<Vec<T>>,
}

/// The elements of a list, in order.
pub(crate) type ChunkListIter<T> = iter::Flatten<vec::IntoIter<Vec<T>>>;

impl<T> ChunkList<T> {
    pub(crate) fn new() -> ChunkList<T> {
        ChunkList { chunks: Vec::new() }
    }

    pub(crate) fn push(&mut self, element: T) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(element),
            None => self.chunks.push(vec![element]),
        }
    }

    /// Adds the elements of `other` behind those of this list.
    pub(crate) fn append(&mut self, other: ChunkList<T>) {
        match other.chunks.len() {
            1 => other.into_iter().for_each(|element| self.push(element)),
            _ => self.chunks.extend(other.chunks),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> IntoIterator for ChunkList<T> {
    type Item = T;
    type IntoIter = ChunkListIter<T>;

    fn into_iter(self) -> ChunkListIter<T> {
        self.chunks.into_iter().flatten()
    }
}

/// The most elements of a chunk.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_keeps_the_order_and_moves_at_most_one_chunk_of_elements() {
        for [first, second] in [[0, 1], [1, 1], [CHUNK, 1], [3, 5 * CHUNK + 1], [5 * CHUNK, 3], [CHUNK + 1, CHUNK + 1]]
        {
            let (mut list, mut other) = (ChunkList::new(), ChunkList::new());
            (0..first).for_each(|number| list.push(number));
            (first..first + second).for_each(|number| other.push(number));
            let places =
                |list: &ChunkList<usize>| list.iter().map(|one| (*one, one as *const usize)).collect::<Vec<_>>();
            let (mut before, after) = (places(&list), {
                let places_before = places(&other);
                list.append(other);
                (places_before, places(&list))
            });
            before.extend(after.0);
            let moved = before.iter().zip(&after.1).filter(|(before, after)| before.1 != after.1).count();
            assert!(moved <= 2 * CHUNK, "{moved} of {first} and {second} elements were moved");
            assert!(list.iter().copied().eq(0..first + second));
            assert!(list.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
            assert!(list.into_iter().rev().eq((0..first + second).rev()));
        }
    }
}
