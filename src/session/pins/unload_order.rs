//! The order in which trackers that are reclaimed together are unloaded.
//!
//! A tracker comes before those of the batch that it refers to. Where no reference decides, the newer one comes first. The trackers
//! of a cycle are also sorted newest first. Mostly all references lead from newer trackers to older ones; then newest first is
//! the order. Otherwise Kosaraju's algorithm finds it, on numbers, with no lock held: the batch is claimed, so its edges stay as
//! they are.

use rustc_hash::FxHashMap;

use crate::base::sort_by_number;
use crate::session::pins::dependants::{PinGraph, newest_first};
use crate::session::pins::pin_table::PIECE;
use crate::session::pins::pinned::Pinned;
use crate::sync::Arc;

/// The numbers of the nodes at the other ends of each node's edges, in ascending order.
type Edges = Vec<Vec<u32>>;

impl<T: Pinned> PinGraph<T> {
    /// Sorts trackers that the caller has claimed into the order in which they are unloaded.
    pub(crate) fn sort(&self, mut batch: Vec<Arc<T>>) -> Vec<Arc<T>> {
        newest_first(&mut batch);
        if !self.has_reference_to_newer(&batch) {
            return batch;
        }
        let (dependants, dependencies) = self.edges_within(&batch);
        // The numbers of the batch are in the order newest first.
        let numbers = 0..batch.len() as u32;
        let mut finished = trees(numbers, &dependants).concat();
        finished.reverse();
        let mut components = trees(finished.into_iter(), &dependencies);
        components.reverse();
        components.iter_mut().for_each(|component| sort_numbers(component));
        components.concat().into_iter().map(|number| batch[number as usize].clone()).collect()
    }

    /// Whether a tracker refers to one that is newer.
    fn has_reference_to_newer(&self, batch: &[Arc<T>]) -> bool {
        let age = |core: &T| (core.dylib_serial(), core.serial());
        let mut found = false;
        self.for_each_reference(batch, |_, from, to| {
            found |= age(to) > age(from);
            !found
        });
        found
    }

    /// The dependants and the dependencies of each tracker, within the batch.
    fn edges_within(&self, batch: &[Arc<T>]) -> (Edges, Edges) {
        let numbers: FxHashMap<_, u32> = batch.iter().zip(0..).map(|(core, number)| (core.key(), number)).collect();
        let (mut dependants, mut dependencies): (Edges, Edges) =
            (vec![Vec::new(); batch.len()], vec![Vec::new(); batch.len()]);
        self.for_each_reference(batch, |from, _, to| {
            if let Some(to) = numbers.get(&to.key()) {
                // Each list of dependants is ascending, because `from` is.
                dependants[*to as usize].push(from);
                dependencies[from as usize].push(*to);
            }
            true
        });
        dependencies.iter_mut().for_each(|numbers| sort_numbers(numbers));
        (dependants, dependencies)
    }

    /// Calls `visit` with each reference of a batch, until it returns false: the number of the tracker, the tracker, and the one that
    /// it refers to.
    fn for_each_reference(&self, batch: &[Arc<T>], mut visit: impl FnMut(u32, &T, &T) -> bool) {
        let mut number = 0;
        for of_dylib in batch.chunk_by(|a, b| a.dylib_serial() == b.dylib_serial()) {
            for piece in of_dylib.chunks(PIECE) {
                let mut table = self.table_of(piece[0].dylib_serial());
                let mut goes_on = true;
                for core in piece {
                    let mut visit = |to: &Arc<T>| goes_on = goes_on && visit(number, core, to);
                    if table.dependency_count(core) <= PIECE {
                        table.for_each_dependency(core, &mut visit);
                    } else {
                        drop(table);
                        self.dependencies(core).iter().for_each(&mut visit);
                        table = self.table_of(core.dylib_serial());
                    }
                    number += 1;
                }
                table.unlock_fair();
                if !goes_on {
                    return;
                }
            }
        }
    }
}

/// Walks depth-first from each root and returns one tree per root, in postorder. A node is in the first tree that reaches it.
fn trees(roots: impl Iterator<Item = u32>, edges: &Edges) -> Vec<Vec<u32>> {
    let mut is_seen = vec![false; edges.len()];
    let mut tree_of = |root: u32| {
        let (mut tree, mut path, mut next) = (Vec::new(), Vec::new(), Some(root));
        loop {
            if let Some(node) = next.take().filter(|node| !std::mem::replace(&mut is_seen[*node as usize], true)) {
                path.push((node, edges[node as usize].iter()));
            }
            let Some((_, unvisited)) = path.last_mut() else { return tree };
            next = unvisited.next().copied();
            if next.is_none() {
                tree.extend(path.pop().map(|(node, _)| node));
            }
        }
    };
    roots.map(&mut tree_of).filter(|tree: &Vec<_>| !tree.is_empty()).collect()
}

fn sort_numbers(numbers: &mut [u32]) {
    sort_by_number(numbers, |number| u128::from(*number));
}
